"""What the commands share that run something on Spark until they are told to stop: ``run`` and ``topology run``.

The commands themselves are in ``commands``. Begin with ``following``.
"""
