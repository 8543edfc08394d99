"""The sink: rows to records, checked, put, counted, or sent to the dead letters.

The calls themselves are ``kinesis.write``'s. Begin with ``writer``.
"""
