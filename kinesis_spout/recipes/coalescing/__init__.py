"""Coalescing for any program: for each key one request in process and at most one waiting.

The decisions are pure: ``line`` and ``lines``. ``in_process`` waits for turns, in threads or tasks;
``processes`` over ZooKeeper. ``spark.tasks.coalescing`` coalesces records on Spark. Begin with ``line``.
"""
