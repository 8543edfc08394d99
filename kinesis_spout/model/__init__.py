"""What every room names: records, dead letters, errors, clocks, handlers, schemes, and lines of the log.

Nothing here reads, writes or decides. Begin with ``record``, then ``handler``.
"""
