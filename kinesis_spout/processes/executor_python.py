"""The Python that runs on the executors: how its failures show, what to set, and what its garbage costs.

PySpark starts ``python3`` from the PATH unless ``PYSPARK_PYTHON`` is set. So a driver in a virtual
environment that made its own session gets another Python on its executors, also in local mode. The
processes in which Spark plans a read or a write of ``format("kinesis")`` run in that Python, too.

A reused Python worker collects its garbage after every task. That walks through all objects of all imported
modules (PySpark, pandas, Arrow, boto3): 27 ms of CPU, more than the rest of a small task. So what is alive
after the first tasks, which is mostly these modules, is hidden from the collector. Nothing else changes:
garbage of later tasks is collected as before.

A worker that waits for its next task when Spark's JVM ends, as after Ctrl-C, answers into a socket that is gone.
Over Unix sockets, which ``spark.sessions`` chooses, that raises BrokenPipeError, and PySpark's daemon prints a
traceback on the user's terminal. Here the worker ends without one.
"""

import gc
import importlib.util
import re
import sys
from collections.abc import Callable
from itertools import count
from types import ModuleType
from typing import Any, Final

from pyspark import TaskContext

from kinesis_spout.model.errors import InvalidConfig

_NEEDED: Final = (
    "boto3",
    "botocore",
    "google",
    "kinesis_spout",
    "msgpack",
    "msgspec",
    "numpy",
    "pyarrow",
    "pybase64",
    "shard_state",
)
"""Packages that every task imports. A Python that lacks one is not the one this package was installed into."""

_NAMES: Final = "|".join(_NEEDED)
_SIGNS: Final = re.compile(
    rf"No module named '(?:{_NAMES})'"
    rf"|\S+ lacks (?:{_NAMES})(?:, (?:{_NAMES}))*"  # as check_packages says it
    r"|Python in worker has different version: [\d. ]+ than that in driver: [\d.]*\d"
    r"|Cannot run program \"[^\"]*python[^\"]*\""
)


def unfit_python(error_text: str) -> str | None:
    """One line that says what to set, if an error of a Spark job is that of an unfit Python; else None."""
    sign = _SIGNS.search(error_text)
    if sign is None:
        return None
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return _advice(sign.group(), local=sys.executable, there=f"a Python there of version {version}")


def check_packages(is_there: Callable[[str], object] = importlib.util.find_spec) -> None:
    """Check that this Python, which Spark started, has what this package needs.

    InvalidConfig: it does not; one line that says what to set.
    """
    lacking = [name for name in _NEEDED if not is_there(name)]
    if lacking:
        raise InvalidConfig(
            _advice(
                f"{sys.executable} lacks {', '.join(lacking)}",
                local="sys.executable of the driver",
                there="a Python there",
            )
        )


def _advice(what: str, *, local: str, there: str) -> str:
    return (
        f"the Python of the executors does not fit: {what}. Set the environment variable PYSPARK_PYTHON before "
        f"the SparkSession starts: in local mode to {local}, on a cluster to {there} with "
        'pip install "kinesis-spout[arrow]"'
    )


_TASKS: Final = 3
"""After the first task nearly all is imported and connected; what later ones add is little."""

_tasks_done = count(1)


def set_aside_imports() -> None:
    """Call at the end of every task. Outside a Spark task, in a test for instance, this does nothing."""
    if TaskContext.get() is not None and next(_tasks_done) <= _TASKS:
        gc.collect()
        gc.freeze()


def end_quietly(daemon: ModuleType) -> None:
    """Have a worker that was forked from PySpark's ``daemon`` end without a traceback when the JVM is gone."""
    serve = getattr(daemon, "worker", None)
    if getattr(daemon.__spec__, "name", None) != "pyspark.daemon" or serve is None:
        return

    def serve_quietly(*connection: Any) -> int:
        try:
            return int(serve(*connection))
        except BrokenPipeError:
            return 1

    daemon.worker = serve_quietly  # type: ignore[attr-defined] # its loop looks it up for each task


end_quietly(sys.modules["__main__"])  # everything of ours that Spark's workers run imports this module
