"""Putting records on streams: full calls, one queue for each shard that refuses, the KPL's aggregated format.

``structured.write`` makes records of rows. Begin with ``record_putter``.
"""
