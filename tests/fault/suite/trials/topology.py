"""The topology of a trial: records become two words each, counted in keyed state, through a shell bolt, to a log.

Every component fails as the record says.
"""

import sys
from pathlib import Path
from typing import Any, Final

from kinesis_spout import KinesisSpout
from kinesis_spout.storm import (
    BasicBolt,
    KeyValueState,
    ShellBolt,
    StatefulBolt,
    Topology,
    TopologyBuilder,
    Tuple,
)
from tests.fault.suite.trials.failing import Failing
from tests.fault.suite.trials.plan import ALL, Place, TrialRecord

REPOSITORY: Final = Path(__file__).parents[4]
_TASKS: Final = 2
_MESSAGE_SECONDS: Final = 100.0


class Split(BasicBolt):
    """Emits the record's word and the one that all have; fails between the two."""

    def __init__(self, failing: Failing) -> None:
        self._failing = failing

    def declare_output_fields(self) -> list[str]:
        return ["text", "word"]

    def process(self, tup: Tuple) -> None:
        record = TrialRecord.decode(tup["text"])
        self.emit([tup["text"], record.word])
        if record.is_poison:
            raise ValueError("always")
        if self._failing.fails(record, Place.SPLIT):
            raise ValueError("half of it is emitted")
        self.emit([tup["text"], ALL])


class Count(StatefulBolt):
    """Counts words; fails after it has."""

    def __init__(self, failing: Failing) -> None:
        self._failing = failing

    def declare_output_fields(self) -> list[str]:
        return ["text", "word"]

    def init_state(self, state: KeyValueState) -> None:
        self._state = state

    def execute(self, tup: Tuple) -> None:
        self._state.put(tup["word"], self._state.get(tup["word"], 0) + 1)
        if tup["word"] == ALL and self._failing.fails(TrialRecord.decode(tup["text"]), Place.COUNT):
            raise ValueError("it is counted")
        self.collector.emit(tup.values, tup)
        self.collector.ack(tup)


class Sink(BasicBolt):
    """Writes down the record's own word."""

    def __init__(self, failing: Failing) -> None:
        self._failing = failing

    def process(self, tup: Tuple) -> None:
        if tup["word"] == ALL:
            return
        self._failing.handle(TrialRecord.decode(tup["text"]), Place.SINK)


def trial_topology(failing: Failing, settings: dict[str, Any], state: str) -> Topology:
    shell = ShellBolt(
        [sys.executable, "-m", "tests.fault.suite.trials.shell_component", failing.log, failing.folder],
        fields=["text", "word"],
        environment={"PYTHONPATH": str(REPOSITORY)},
    )
    builder = TopologyBuilder()
    builder.set_spout("records", KinesisSpout(scheme="text", **settings), fields=["text"])
    builder.set_bolt("split", Split(failing), _TASKS).shuffle_grouping("records")
    builder.set_bolt("count", Count(failing), _TASKS).fields_grouping("split", ["word"])
    builder.set_bolt("shell", shell, _TASKS).fields_grouping("count", ["word"])
    builder.set_bolt("sink", Sink(failing), _TASKS).shuffle_grouping("shell")
    return builder.build("trial", state=state, partitions=_TASKS, message_timeout_seconds=_MESSAGE_SECONDS)
