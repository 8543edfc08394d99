"""GetRecords: the call, with little CPU, and the body of its reply in one piece.

The folder above uses the reply and schedules the next call. Begin with ``get_records``.
"""
