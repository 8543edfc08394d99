"""Where given-up records go: folders, S3, Hadoop, another stream.

When a record is given up is ``shard_state``'s; how it is put back is ``operations``'. Begin with ``sink_url``.
"""
