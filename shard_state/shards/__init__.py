"""Which shards there are, which came from which, how far each is in its life, and whose turn is next.

What is known of the records of a shard is ``local_shard``'s. Begin with ``lineage``.
"""
