"""What tests of shell components share: the components, and a topology of one bolt."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from kinesis_spout.storm import DEFAULT_STREAM, BasicBolt, ShellBolt, Spout, Stream, TopologyBuilder, Tuple
from kinesis_spout.storm.hosting.processes.children import ChildKey
from kinesis_spout.storm.local import LocalTopology
from kinesis_spout.storm.running.counts import ComponentMetric
from tests.support.spark.micro_batch_world import DeliveryLog

ROOT: Final = Path(__file__).parents[3]
COMPONENTS: Final = ROOT / "tests/support/storm/shell_components"
ENVIRONMENT: Final = {"PYTHONPATH": str(ROOT)}
KEY: Final = ChildKey(topology="words", run="", component="shell", task=2)


class Words(Spout):
    """Stands for the tuples that a test gives."""

    def declare_output_fields(self) -> tuple[str, ...]:
        return ("word",)

    def next_tuple(self) -> None:
        raise AssertionError("a test gives the tuples")


class LogCounts(BasicBolt):
    """Writes what the behaviour "counts" says of each word: how many it has seen, in which process."""

    def __init__(self, log: DeliveryLog) -> None:
        self._log = log

    def process(self, tup: Tuple) -> None:
        self._log.add(f"{tup['word']} {tup['seen']}", 1, str(tup["pid"]))


class Collected:
    """Keeps what a spout emits."""

    def __init__(self) -> None:
        self.values: list[list[Any]] = []
        self.ids: list[Any] = []
        self.errors: list[str] = []
        self.metrics: dict[str, ComponentMetric] = {}

    def emit(self, values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT_STREAM) -> None:
        assert stream == DEFAULT_STREAM
        self.values.append(list(values))
        self.ids.append(message_id)

    def report_error(self, error: BaseException) -> None:
        self.errors.append(str(error))

    def report_metric(self, name: str, value: Any) -> None:
        self.metrics.setdefault(name, ComponentMetric()).report(value)


def command(how: str) -> list[str]:
    return [sys.executable, str(COMPONENTS / "bolt.py"), how]


def shell_bolt(how: str, *, fields: tuple[str, ...] = ("word",), **settings: Any) -> ShellBolt:
    streams = {DEFAULT_STREAM: Stream(fields), "aside": Stream(("word",), direct=True)}
    return ShellBolt(command(how), streams=streams, **_with_defaults(settings))


def _with_defaults(settings: dict[str, Any]) -> dict[str, Any]:
    environment = {**ENVIRONMENT, **settings.pop("environment", {})}
    return {"timeout_seconds": 20.0, **settings, "environment": environment}


@contextmanager
def topology(
    bolt: ShellBolt, *, clock: Callable[[], float] | None = None, **options: Any
) -> Iterator[LocalTopology]:
    builder = TopologyBuilder()
    builder.set_spout("words", Words())
    builder.set_bolt("shell", bolt).shuffle_grouping("words")
    # Where a test says nothing of time, a busy machine may start its processes as slowly as it likes.
    local = builder.build("words", **{"message_timeout_seconds": 600.0, **options}).local(clock)
    try:
        yield local
    finally:
        local.close()


def words(*every: str) -> list[tuple[str]]:
    return [(word,) for word in every]
