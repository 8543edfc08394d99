"""Spark tasks that live for seconds and are handed one micro-batch after another, while records come slowly.

What the slices do in a task is in ``tasks``; when a micro-batch is made, in ``driver``. Begin with
``long_task_runner``.
"""
