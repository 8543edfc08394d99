"""What a user writes, bolts and spouts, and what they get: tuples, a context, a collector.

How tuples travel between them is in ``running``; how they are wired, in ``graph``. Begin with ``bolt``.
"""
