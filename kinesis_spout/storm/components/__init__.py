"""Bolts and spouts, which users write, and what these get: tuples, a context, a collector.

``graph`` wires them, ``running`` carries tuples between them. Begin with ``bolt``.
"""
