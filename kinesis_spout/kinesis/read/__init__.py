"""Reading one shard: calls, replies decoded to records or Arrow columns, getters, pacing, and the reader of every door.

Which shards there are, and what an error means, is the folder above's. Begin with ``shard_reader``, then ``getter``.
"""
