"""Spark tasks that live for seconds and are handed one micro-batch after another, while records come slowly.

``tasks`` has the work of the slices in a task, ``driver`` the making of micro-batches. Begin with
``long_task_runner``.
"""
