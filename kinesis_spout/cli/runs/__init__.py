"""What the commands share that run something on Spark until it is told to stop.

The commands themselves are in ``commands`` and ``topologies``. Begin with ``following``.
"""
