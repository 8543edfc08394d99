"""``topology run`` shows what the components do, until the topology is at its end or is told to stop."""

import json
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kinesis_spout.consumer.counters import Counters
from kinesis_spout.model.errors import StreamNotFound, Unavailable
from kinesis_spout.storm.running.counts import ComponentCounts
from shard_state import ShardStatus, Trouble
from tests.unit.cli.commands.conftest import FakeSpark
from tests.unit.cli.fake_world import FakeWorld

WIRED = """
from kinesis_spout import KinesisSpout
from kinesis_spout.storm import TopologyBuilder
from tests.support.storm.components import Split

def words():
    builder = TopologyBuilder()
    for name in ("sentences", "more"):
        spout = KinesisSpout(stream=name, app="words", scheme="text")
        builder.set_spout(name, spout, fields=["sentence"])
    builder.set_bolt("split", Split()).shuffle_grouping("sentences").shuffle_grouping("more")
    return builder
"""


class RunningSpout:
    def __init__(self, acked: int, dead_lettered: int = 0) -> None:
        self.counters = Counters()
        self.counters.delivered = acked + dead_lettered
        self.counters.acked = acked
        self.counters.dead_lettered = dead_lettered
        self.last_error: Unavailable | None = None
        self.trouble: Trouble | None = None
        self.paused_by_operator: str | None = None
        self.lastProgress = None  # as SpoutQuery spells it
        self.is_done = False
        self.assigned: dict[str, int] = {}

    def shards(self) -> list[ShardStatus]:
        return []


class RunningTopology:
    """A query that is at its end at once, unless it pauses or waits; or ends when it is stopped."""

    def __init__(self) -> None:
        self.spouts = {"sentences": RunningSpout(3), "more": RunningSpout(2)}
        self.own_spouts: dict[str, RunningSpout] = {}
        self.components = {
            "sentences": ComponentCounts(emitted=4, acked=3, failed=1, completed=3, completing_seconds=0.75),
            "split": ComponentCounts(executed=1_200, emitted=9, acked=1_199, failed=1),
        }
        self.waits = False
        self.stopped = threading.Event()

    @property
    def trouble(self) -> Trouble | None:
        return next((each.trouble for each in self.spouts.values() if each.trouble is not None), None)

    @property
    def isActive(self) -> bool:  # noqa: N802
        return (self.waits or self.trouble is not None) and not self.stopped.is_set()

    def exception(self) -> None:
        """Nothing went wrong."""

    def stop(self) -> None:
        self.stopped.set()


@pytest.fixture
def query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started_spark: FakeSpark
) -> Iterator[RunningTopology]:
    assert started_spark.may_start
    (tmp_path / "wired.py").write_text(WIRED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    query = RunningTopology()
    monkeypatch.setattr("kinesis_spout.storm.Topology.run", lambda *_, **__: query)
    yield query
    sys.modules.pop("wired", None)


def run(*arguments: str, exit_code: int = 0) -> tuple[str, str]:
    return FakeWorld().call("topology", "run", "wired:words", *arguments, exit_code=exit_code)


def test_a_log_gets_the_sums_of_all_spouts_and_a_table_of_the_components(query: RunningTopology) -> None:
    out, err = run()
    assert out == ""
    assert "stopped: delivered 5  acked 5  retried 0  dead-lettered 0" in err
    heading, spout, bolt = err.splitlines()[-3:]
    assert heading.split() == [
        "component",
        "executed",
        "emitted",
        "acked",
        "failed",
        "timed",
        "out",
        "latency",
    ]
    assert spout.split() == ["sentences", "-", "4", "3", "1", "0", "250", "ms"]
    assert bolt.split() == ["split", "1,200", "9", "1,199", "1", "0", "-"]
    assert query.stopped.is_set()


def test_spouts_of_the_users_own_are_shown_like_those_of_kinesis(query: RunningTopology) -> None:
    query.own_spouts, query.spouts = {"sentences": RunningSpout(3)}, {}
    _, err = run()
    assert "stopped: delivered 3  acked 3  retried 0  dead-lettered 0" in err
    out, _ = run("--json")
    last = json.loads(out.splitlines()[-1])
    assert (last["acked"], last["spouts"]["sentences"]["acked"]) == (3, 3)


def test_programs_get_lines_of_json_with_spouts_and_components(query: RunningTopology) -> None:
    query.spouts["more"].last_error = Unavailable("down")
    out, _ = run("--json")
    last = json.loads(out.splitlines()[-1])
    assert (last["state"], last["acked"], last["last_error"]) == ("stopped", 5, "down")
    assert {name: each["acked"] for name, each in last["spouts"].items()} == {"sentences": 3, "more": 2}
    assert last["components"]["split"]["executed"] == 1_200


@pytest.mark.usefixtures("query")
def test_a_topology_that_cannot_run_is_refused_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch, spark: FakeSpark
) -> None:
    monkeypatch.setenv("KINESIS_SPOUT_ORDER", "shard")
    _, err = run(exit_code=2)
    assert err.startswith("error: wired:words: ")
    assert "next: fix it in its module" in err
    assert spark.names == []


@pytest.mark.usefixtures("query")
def test_the_application_of_spark_is_named_after_the_query(spark: FakeSpark) -> None:
    run()
    run("--name", "of words")
    assert spark.names == ["wired", "of words"]


def test_a_stream_that_does_not_exist_is_refused_before_spark_starts(
    query: RunningTopology, spark: FakeSpark
) -> None:
    world = FakeWorld()
    world.problem = StreamNotFound("no stream 'sentences'")
    _, err = world.call("topology", "run", "wired:words", exit_code=3)
    assert err.startswith("error: no stream 'sentences'")
    assert (spark.names, query.stopped.is_set()) == ([], False)


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_stops_the_topology_in_order(
    query: RunningTopology, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, exit_code: int
) -> None:
    query.waits = True
    taken: list[str] = []

    def components() -> dict[str, ComponentCounts]:
        """Is asked when it runs: tells it to stop."""
        if not taken:
            signal.raise_signal(number)
        taken.append("look")
        return {}

    monkeypatch.setattr(
        RunningTopology, "components", property(lambda _: components(), lambda *_: None), raising=False
    )
    out, _ = run("--json", exit_code=exit_code)
    assert [json.loads(line)["state"] for line in out.splitlines()] == ["running", "stopping", "stopped"]
    assert query.stopped.is_set()


def test_a_signal_while_spark_starts_begins_nothing(query: RunningTopology, spark: FakeSpark) -> None:
    spark.signal = signal.SIGTERM
    out, _ = run("--json")
    assert out == ""
    assert not query.stopped.is_set()


def test_dead_letters_of_each_spout_are_told_with_where_they_are(query: RunningTopology) -> None:
    query.spouts = {"sentences": RunningSpout(3, dead_lettered=1), "more": RunningSpout(2, dead_lettered=4)}
    _, err = run()
    assert (
        "1 record was dead-lettered: `kinesis-spout dead-letters list --stream sentences --app words`" in err
    )
    assert "4 records were dead-lettered: `kinesis-spout dead-letters list --stream more --app words`" in err
    query.stopped.clear()
    run("--fail-on-dead-letters", exit_code=7)


def test_a_topology_that_pauses_for_too_long_ends_a_run_that_has_an_end(
    query: RunningTopology, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kinesis_spout.cli.runs.following._LONGEST_PAUSE_SECONDS", 0.05)
    monkeypatch.setenv("KINESIS_SPOUT_UNTIL", "latest")
    query.spouts["more"].trouble = Trouble(failing=0.97, seconds=30.0, slowed=True)
    _, err = run(exit_code=8)
    assert "slowed: delivered 5" in err
    assert "error: deliveries slowed: the handler fails for 97% of the records" in err
