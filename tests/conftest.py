"""Registers the fixtures that test modules share (a module comes after those it imports), sets Hypothesis up.

The tests stay quick while each costs little CPU: four workers share two cores. So, first, use the session's
Spark, ZooKeeper and endpoint (``spark``, ``zookeeper_server``, ``moto_server``); a Spark of its own costs a test
12 s of CPU, a Python that imports the package 2 s. Second, wait for a condition, and pass a clock or a short
setting to what waits for long. Third, look at ``pytest --durations=25`` of the folder before a commit.

A worker runs whole files, as a file may have fixtures of its own; those that take long come first. All files that
use the fixture ``spark`` are one worker's, and begin at once: theirs is the only JVM with Spark that tests share.
"""

import os
import signal
import sys
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from tests.spark_classes import quick_java

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

# Of every Spark that a test starts. A third of the CPU of a first query.
os.environ.setdefault("SPARK_SUBMIT_OPTS", quick_java(Path(sys.prefix)))

# A shell has what it starts in the background ignore Ctrl-C, and so would every program that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)

# A busy machine is no fault: no test here is about how long it takes.
hypothesis.settings.register_profile(
    "no deadline", deadline=None, print_blob=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("no deadline")

pytest_plugins = [
    "tests.support.browser",
    "tests.support.zookeeper.server",
    "tests.support.zookeeper.secured",
    "tests.support.zookeeper.places",
    "tests.support.kinesis.decoders",
    "tests.support.kinesis.endpoints",
    "tests.support.kinesis.unkind.endpoint",
    "tests.support.kinesis.streams_under_test",
    "tests.support.spark.session",
    "tests.support.spark.micro_batch_world",
    "tests.support.storm.hang_clock",
    "tests.wheel.installed_wheel",
    "tests.wheel.readers_shell",
]

_ROOT = Path(__file__).parents[1]
_ON_SPARK = "spark: SparkSession"
"""How a file that uses the fixture says so: who shares out the tests knows only their names."""
_LONGEST_FIRST = ("wheel", "fault", "integration", "contract", "model", "unit")
"""Folders of tests. The short files are left for the end, when they fill what is left of each worker's time."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order what the workers share out."""
    for item in items:
        if item.get_closest_marker("spark") and "spark" in getattr(item, "fixturenames", ()):
            assert _is_on_spark(item.nodeid), (
                f"expected the mark spark in {item.nodeid}, which uses the fixture"
            )
    if hasattr(config, "workerinput"):
        items.sort(key=_turn)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> "LoadScopeScheduling":
    """Share out whole files, but all that run on Spark together."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 - it may be missing

    class OneSpark(LoadScopeScheduling):  # type: ignore[misc] # which has no types
        def _split_scope(self, nodeid: str) -> str:
            return "spark" if _is_on_spark(nodeid) else nodeid.partition("::")[0]

    return OneSpark(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a worker tell what a test has logged: half a character cannot travel, and would end the whole run."""
    report = yield
    report.sections = [
        (name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections
    ]
    return report


@cache
def _file_is_on_spark(file: str) -> bool:
    return _ON_SPARK in (_ROOT / file).read_text()


def _is_on_spark(nodeid: str) -> bool:
    return _file_is_on_spark(nodeid.partition("::")[0])


def _turn(item: pytest.Item) -> int:
    folder = item.path.relative_to(Path(__file__).parent).parts[0]
    if _is_on_spark(item.nodeid):
        return -1
    return _LONGEST_FIRST.index(folder) if folder in _LONGEST_FIRST else len(_LONGEST_FIRST)
