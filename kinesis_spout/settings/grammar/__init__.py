"""The grammar of values: numbers and times, names of streams, positions of shards.

``table`` says which options take them. Begin with ``value_types``.
"""
