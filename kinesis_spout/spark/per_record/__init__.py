"""``each_record``: per-record outcomes inside Structured Streaming's ``foreachBatch``.

It works on any DataFrame with the six columns; ``structured`` reads them. Begin with ``each_record``.
"""
