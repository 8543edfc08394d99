"""Reading one shard: calls, replies decoded to records or Arrow columns, getters, pacing, every door's reader.

Which shards there are, and what an error means, is the folder above's. Begin with ``shard_reader`` and ``getter``.
"""
