"""Bolts and spouts, which users write, and what these get: tuples, a context, a collector.

How tuples travel between them is in ``running``; how they are wired, in ``graph``. Begin with ``bolt``.
"""
