"""Shared by the commands that run something on Spark, ``run`` and ``topology run``. Begin with ``following``."""
