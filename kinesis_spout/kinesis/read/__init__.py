"""Reading one shard: calls, decoding to records or Arrow columns, getters, every door's reader.

The folder above lists shards, interprets errors and says when a shard may be read.
Begin with ``shard_reader`` and ``polled_getter``.
"""
