"""Putting records on streams: full calls, one queue for each shard that refuses, the KPL's aggregated format.

Which rows become records is ``structured.write``'s. Begin with ``record_putter``.
"""
