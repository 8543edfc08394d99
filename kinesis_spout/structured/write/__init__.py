"""The sink: rows to records, checked, put, counted, or sent to the dead letters.

``kinesis.write`` makes the calls. Begin with ``writer``.
"""
