"""Registers the fixtures that test modules share (a module comes after those it imports), sets Hypothesis up.

The tests stay quick while each costs little CPU: `make test` shares two cores among four workers. So, first, use
the session's Spark, ZooKeeper and endpoint (``spark``, ``zookeeper_server``, ``moto_server``); a Spark of its own
costs a test 12 s of CPU, a Python that imports the package 2 s. Second, wait for a condition, and pass a clock or
a short setting to what waits for long. Third, look at ``pytest --durations=25`` of the folder before a commit.

A worker runs whole files, as a file may have fixtures of its own. See ``_share_of`` for what differs.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.spark_classes import quick_java

# Of every Spark that a test starts. A third of the CPU of a first query.
os.environ.setdefault("SPARK_SUBMIT_OPTS", quick_java(Path(sys.prefix)))

# A shell has what it starts in the background ignore Ctrl-C, and so would every program that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)

# A busy machine is no fault: no test here is about how long it takes.
hypothesis.settings.register_profile("no deadline", deadline=None, print_blob=True)
hypothesis.settings.load_profile("no deadline")

pytest_plugins = [
    "tests.support.zookeeper.server",
    "tests.support.zookeeper.secured",
    "tests.support.zookeeper.places",
    "tests.support.kinesis.endpoints",
    "tests.support.kinesis.streams_under_test",
    "tests.support.spark.session",
    "tests.support.spark.micro_batch_world",
    "tests.support.storm.hang_clock",
    "tests.wheel.installed_wheel",
    "tests.wheel.readers_shell",
]

_LONGEST_FIRST = ("wheel", "fault", "integration", "contract", "model", "unit")
"""Folders of tests. The short files are left for the end, when they fill what is left of each worker's time."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Say what the workers share out as one, and in which order."""
    if not hasattr(config, "workerinput"):
        return
    for item in items:
        share = _share_of(item)
        if share is not None:
            item.add_marker(pytest.mark.xdist_group(share))
    items.sort(key=lambda item: (_LONGEST_FIRST.index(_folder(item)), not _has_session(item)))


def _share_of(item: pytest.Item) -> str | None:
    """Name what the test goes to one worker with; None lets it go alone."""
    if _has_session(item):
        return "spark, " + ("DataFrames" if item.path.stem.startswith("test_structured") else "handlers")
    if _folder(item) == "fault":  # each starts all that it needs, and takes long
        return None
    return item.location[0]


def _has_session(item: pytest.Item) -> bool:
    """Tell whether the test uses the session's Spark: each worker that has one pays for its start."""
    info: Any = getattr(item, "_fixtureinfo", None)
    return any(fixture.scope == "session" for fixture in info.name2fixturedefs.get("spark", ()))


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(Path(__file__).parent).parts[0]
