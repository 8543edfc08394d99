"""The bar says how far a run is on its way to its end, and never goes back."""

from dataclasses import replace

import pytest

from kinesis_spout.cli.runs.progress_views import Goal
from kinesis_spout.cli.runs.snapshot import Snapshot
from kinesis_spout.consumer.counters import Counters
from kinesis_spout.settings import SpoutConfig
from shard_state import ShardPhase, ShardStatus


def config(until: str | None = None) -> SpoutConfig:
    return SpoutConfig.of(stream="orders", app="billing", until=until)


def snapshot(lag_seconds: float | None = None, *, waiting: int = 0, phases: str = "") -> Snapshot:
    shards = [ShardStatus(shard_id="with retries", phase=ShardPhase.READING, waiting=waiting)] * bool(waiting)
    shards += [ShardStatus(shard_id=f"{phase}", phase=ShardPhase[phase]) for phase in phases.split()]
    return Snapshot(
        state="running",
        counters=Counters(acked=90),
        records_per_second=0,
        lag_millis=None if lag_seconds is None else int(1000 * lag_seconds),
        shards=tuple(shards),
    )


def test_a_run_without_an_end_has_no_goal() -> None:
    assert Goal.of([config()]) is None
    assert Goal.of([]) is None
    assert Goal.of([config("latest"), config()]) is None, "one spout goes on"


@pytest.mark.parametrize(
    ("until", "name", "by_time"),
    [
        ("latest", "latest", True),
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z", True),
        ('{"shardId-000000000000": "at_sequence_number 5"}', "the end of each shard", False),
        ('{"shardId-000000000000": "2026-01-31T12:00:00Z"}', "the end of each shard", True),
    ],
)
def test_its_name_is_what_the_user_wrote_unless_that_is_long(until: str, name: str, *, by_time: bool) -> None:
    goal = Goal.of([config(until)])
    assert goal is not None
    assert (goal.name, goal.time is not None) == (name, by_time)


def test_a_run_up_to_a_time_is_as_far_as_its_reads() -> None:
    goal = Goal("latest", 1_000.0)
    assert goal.reached(snapshot(None), 1_000.0) is None
    assert goal.reached(snapshot(400), 1_000.0) == 0
    assert goal.reached(snapshot(310), 1_010.0) == 0.25
    assert goal.reached(snapshot(320), 1_010.0) == 0.25, "it never goes back"
    assert goal.reached(snapshot(20), 1_020.0) == 0.99, "it has not ended yet"
    assert goal.reached(replace(snapshot(20), state="stopped", is_done=True), 1_020.0) == 1
    assert Goal("latest", 1_000.0).reached(replace(snapshot(20), state="stopped"), 1_020.0) == 0.99


def test_what_was_read_and_is_not_finished_counts_as_missing() -> None:
    goal = Goal("latest", 1_000.0)
    goal.reached(snapshot(400), 1_000.0)
    assert goal.reached(snapshot(0, waiting=30), 1_000.0) == 0.75


def test_a_run_up_to_records_is_as_far_as_many_of_its_shards() -> None:
    goal = Goal("the end of each shard", None)
    assert goal.reached(snapshot(), 0) is None
    assert goal.reached(snapshot(phases="READING AT_BOUND OVER READY"), 0) == 0.5
