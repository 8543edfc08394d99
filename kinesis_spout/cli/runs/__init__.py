"""What the commands that run something on Spark share: ``run`` and ``topology run``. Begin with ``following``."""
