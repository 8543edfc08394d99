"""Keeps PySpark's garbage collection between tasks cheap.

A reused Python worker collects its garbage after every task. That walks through all objects of all imported
modules (PySpark, pandas, Arrow, boto3): 27 ms of CPU, more than the rest of a small task. So what is alive
after the first tasks, which is mostly these modules, is hidden from the collector. Nothing else changes:
garbage of later tasks is collected as before.
"""

import gc
from itertools import count
from typing import Final

from pyspark import TaskContext

_TASKS: Final = 3
"""After the first task nearly all is imported and connected; what later ones add is little."""

_tasks_done = count(1)


def set_aside_imports() -> None:
    """Call at the end of every task. Outside a Spark task, in a test for instance, this does nothing."""
    if TaskContext.get() is not None and next(_tasks_done) <= _TASKS:
        gc.collect()
        gc.freeze()
