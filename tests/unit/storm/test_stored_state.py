"""Reading state from outside, while the topology runs and deletes what it has replaced."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kinesis_spout import KinesisSpout
from kinesis_spout.model.errors import InvalidConfig, StateUnreadable
from kinesis_spout.storm import KeyValueState, StatefulBolt, Topology, TopologyBuilder, Tuple, stored_state
from kinesis_spout.storm.state.files import StateFiles
from kinesis_spout.storm.state.manifest import StateManifest
from kinesis_spout.storm.state.partition import StatePartition
from tests.support.storm.scripted_topology import Declared


class Counts(StatefulBolt):
    def init_state(self, state: KeyValueState) -> None:
        self.state = state

    def execute(self, tup: Tuple) -> None:
        self.collector.ack(tup)


def topology(address: Path, *, more: bool = False) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("lines", KinesisSpout(stream="s", app="a"), fields=["line"])
    if more:
        builder.set_spout("more", Declared())
    builder.set_bolt("count", Counts()).fields_grouping("lines", ["line"])
    return builder.build("words", state=str(address))


def states(address: Path) -> tuple[StateManifest, StateManifest, Path]:
    """Store a state and a later one; give both, and the file of the first that the later one has replaced."""
    first = StateManifest(topology="words", life="one").with_components({"count": 1})
    place = first.place("count", 0)
    part = StatePartition(StateFiles(str(address)), place)
    manifests = []
    for value in (1, 2):
        part.load(first.files("count", 0))
        part.state.put("a", value)
        update = part.end_batch()
        assert update is not None
        first = first.with_updates([update])
        manifests.append(first)
    (replaced,) = manifests[0].files("count", 0)
    assert replaced not in manifests[1].files("count", 0)
    return manifests[0], manifests[1], address / place.path(replaced)


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What ZooKeeper answers, one after the other; the last one again and again."""
    answers: list[bytes] = []

    @contextmanager
    def attached(_: Topology) -> Iterator[Callable[[], bytes | None]]:
        yield lambda: answers.pop(0) if len(answers) > 1 else answers[0]

    monkeypatch.setattr(stored_state, "_attached", attached)
    return answers


def test_state_whose_files_are_replaced_while_it_is_read_is_read_anew(
    tmp_path: Path, stored: list[bytes]
) -> None:
    before, after, replaced = states(tmp_path)
    replaced.unlink()
    stored += [before.encode(), after.encode()]
    assert topology(tmp_path).read_state("count") == {"a": 2}


def test_a_file_that_is_gone_and_still_named_is_an_error(tmp_path: Path, stored: list[bytes]) -> None:
    before, _, replaced = states(tmp_path)
    replaced.unlink()
    stored.append(before.encode())
    with pytest.raises(StateUnreadable, match="no such file"):
        topology(tmp_path).read_state("count")


def test_state_of_several_spouts_is_refused_as_it_is_when_they_run(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidConfig, match=r"expected one KinesisSpout, .* 'lines' \(KinesisSpout\), 'more'"
    ):
        topology(tmp_path, more=True).read_state("count")
