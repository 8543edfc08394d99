"""A word count whose words make trouble on request. In a module, so that executors can import it.

What is to happen once leaves a file that tells that it did, in a folder that all processes share.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kinesis_spout import KinesisSpout
from kinesis_spout.storm import (
    KeyValueState,
    OutputCollector,
    StatefulBolt,
    TaskContext,
    Topology,
    TopologyBuilder,
    Tuple,
)
from kinesis_spout.storm.spark import stages
from tests.support.spark.micro_batch_world import DeliveryLog
from tests.support.storm.components import LogWords, Split
from tests.support.storm.shipped_tallies import add_tallies

SPLIT, COUNT, ACKER = "die-in-split", "die-in-count", "die-in-acker"
"""A word that kills the Python worker of a stage with SIGKILL, once."""
GATE: Final = "gate"
"""A word that is counted only once the gate is open, after others."""
COUNTING_TASKS: Final = 2
_GATE_SECONDS: Final = 120.0


@dataclass(frozen=True, kw_only=True)
class Faults:
    """What happened, by files in a folder. Picklable."""

    folder: Path

    def happened(self, what: str) -> bool:
        return self._file(what).exists()

    def victim(self, what: str) -> int:
        """Give the process that was killed."""
        return int(self._file(what).read_text())

    def kill_once(self, what: str) -> None:
        """Kill this process, if none was killed for that before."""
        try:
            file = os.open(self._file(what), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return
        os.write(file, str(os.getpid()).encode())
        os.close(file)
        os.kill(os.getpid(), signal.SIGKILL)

    def open_gate(self) -> None:
        self._file("gate-open").touch()

    def pass_gate(self) -> None:
        self._file("gate-reached").write_text(str(Path.cwd()))
        deadline = time.monotonic() + _GATE_SECONDS
        while not self.happened("gate-open"):
            assert time.monotonic() < deadline, "nobody opened the gate"
            time.sleep(0.02)

    def where(self, what: str) -> str:
        """Read what a file says."""
        return self._file(what).read_text()

    def note(self, what: str, text: str) -> None:
        file = os.open(self._file(what), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, f"{text}\n".encode())
        os.close(file)

    def notes(self, what: str) -> list[str]:
        return self.where(what).splitlines() if self.happened(what) else []

    def _file(self, what: str) -> Path:
        return self.folder / f"{what}.fault"


class FaultySplit(Split):
    """Dies on request."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def process(self, tup: Tuple) -> None:
        if SPLIT in tup["sentence"].split():
            self._faults.kill_once(SPLIT)
        super().process(tup)


class FaultyCount(StatefulBolt):
    """Counts words in its state; dies on request, waits at the gate, makes its worker die as an acker."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def prepare(self, conf: Mapping[str, Any], context: TaskContext, collector: OutputCollector) -> None:
        super().prepare(conf, context, collector)
        self._task = context.index

    def init_state(self, state: KeyValueState) -> None:
        self._state = state
        self._faults.note(f"count-{self._task}-begins", str(Path.cwd()))

    def execute(self, tup: Tuple) -> None:
        word = tup["word"]
        self._state.put(word, self._state.get(word, 0) + 1)
        self.collector.ack(tup)
        if word == COUNT:
            self._faults.kill_once(COUNT)
        elif word == ACKER:
            _die_as_acker(self._faults)
        elif word == GATE:
            self._faults.pass_gate()


def faulty_word_count(
    faults: Faults,
    log: DeliveryLog,
    settings: Mapping[str, Any],
    tallies: Mapping[str, str] | None = None,
    ackers: int | None = None,
) -> Topology:
    """Wire it: every word is counted in state, and logged without; and by shell bolts, given with their files."""
    builder = TopologyBuilder()
    builder.set_spout("sentences", KinesisSpout(scheme="text", **settings), fields=["sentence"])
    builder.set_bolt("split", FaultySplit(faults), 2).shuffle_grouping("sentences")
    builder.set_bolt("count", FaultyCount(faults), COUNTING_TASKS).fields_grouping("split", ["word"])
    builder.set_bolt("log", LogWords(log), 2).fields_grouping("split", ["word"])
    add_tallies(builder, tallies or {}, faults.folder)
    return builder.build(
        "word count",
        state=str(faults.folder / "state"),
        partitions=COUNTING_TASKS,
        ackers=ackers,
        message_timeout_seconds=100,
    )


def recount(sentences: Iterable[str]) -> dict[str, int]:
    return dict(Counter(word for sentence in sentences for word in sentence.split()))


def _die_as_acker(faults: Faults) -> None:
    """Have this worker, which Spark uses again, die amid the next decision of trees."""
    if faults.happened(ACKER):
        return
    names = vars(stages)
    decide: Callable[..., Any] = names["acker_decides"]

    def doomed(blocks: Iterable[Any]) -> Iterator[Any]:
        for block in blocks:
            faults.kill_once(ACKER)
            yield block

    names["acker_decides"] = lambda blocks: decide(doomed(blocks))
