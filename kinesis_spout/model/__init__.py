"""The words of every room: records, dead letters, errors, clocks, handlers, schemes, lines of the log.

Nothing here reads, writes or decides. Begin with ``record``, then ``handler``.
"""
