"""How values are written: numbers and times, names of streams, positions of shards.

Which options take them is ``table``. Begin with ``value_types``.
"""
