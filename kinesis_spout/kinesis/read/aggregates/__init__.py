"""Aggregated records (the KPL's format) among what was read, taken apart.

The format itself is ``kinesis.aggregated_record``'s. Begin with ``user_columns``.
"""
