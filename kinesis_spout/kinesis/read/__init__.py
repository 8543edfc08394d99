"""Reading one shard: calls, decoding to records or Arrow columns, getters, pacing, every door's reader.

The folder above lists shards and interprets errors. Begin with ``shard_reader`` and ``getter``.
"""
