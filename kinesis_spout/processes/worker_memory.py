"""Keeps PySpark's garbage collection between tasks cheap.

A Python worker that is reused collects its garbage after every task. That walks through all objects of all
imported modules (PySpark, pandas, Arrow, boto3): 27 ms of CPU, more than the rest of a small task. So what is
alive after the first tasks, which is just that, is moved out of the collector's sight. Nothing else changes:
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
    """Call at the end of every task. Outside of a Spark task, in a test for instance, this does nothing."""
    if TaskContext.get() is not None and next(_tasks_done) <= _TASKS:
        gc.collect()
        gc.freeze()
