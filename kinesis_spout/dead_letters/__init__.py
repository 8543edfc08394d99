"""Where given-up records go: folders, S3, Hadoop, another stream; and how they are put back.

When a record is given up is ``shard_state``'s. Begin with ``sink_url``.
"""
