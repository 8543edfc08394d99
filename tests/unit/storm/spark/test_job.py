"""The jobs of a spout: how an exchange is written, and which records come back as failed."""

import logging
from typing import Any

import pytest

from kinesis_spout.model.errors import HandlerKilledWorker
from kinesis_spout.model.record import Record
from kinesis_spout.spark.pickled_handler import PickledHandler
from kinesis_spout.spark.tasks.work import WorkSlice
from kinesis_spout.storm import TopologyBuilder, Tuple
from kinesis_spout.storm.running.clocks import NO_TICKS
from kinesis_spout.storm.spark.job import TopologyJobs
from kinesis_spout.storm.spark.stages import FirstStage, FirstStageOfTuples, GivenTuple, packed_share
from kinesis_spout.testing import InMemoryStream
from shard_state import Position, SliceKind, SlicePlan
from tests.support.spark.spark_here import SparkHere
from tests.support.storm.scripted_topology import Declared, Scripted, acks
from tests.unit.spark.driver.world import StreamClient, task_settings


class WithoutPrivateWays(SparkHere):
    _jvm = None


class Quiet(Declared):
    def next_tuple(self) -> None:
        """There is none."""


def run_two(spark: SparkHere) -> Any:
    """Run two micro-batches with an exchange; give how many tuples came through it."""
    builder = TopologyBuilder()
    builder.set_spout("mine", Quiet())
    builder.set_bolt("sink", Scripted(acks), 2).fields_grouping("mine", ["value"])
    jobs = TopologyJobs(spark, builder.build()._programs(2)["mine"], None, has_records=False)
    first = FirstStageOfTuples(shipped=jobs.shipped)
    for tag in ("first", "second"):
        share = packed_share([GivenTuple(0, ["a"], "default", is_tracked=True)], {})
        jobs.run(tag, [share], first, ticks=NO_TICKS)
    return jobs.counts["sink"].acked


def test_where_spark_lets_nobody_choose_how_it_writes_an_exchange_it_writes_as_it_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert run_two(WithoutPrivateWays()) == 2
    assert caplog.text.count("lets nobody choose how an exchange is written") == 1


@pytest.mark.parametrize("name", ["spark.shuffle.push.enabled", "spark.shuffle.manager"])
def test_a_shuffle_that_may_join_what_tasks_have_written_keeps_the_serializer_that_spark_takes(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    assert run_two(WithoutPrivateWays({name: "true"})) == 2
    assert caplog.text.count("exchange") == 0


def test_a_job_whose_records_are_gone_when_a_tree_has_failed_does_not_count() -> None:
    """As when a machine is lost after the job, and the first stage reads other records for the second one."""
    builder = TopologyBuilder()
    builder.set_spout("mine", Quiet())
    fails = Scripted(lambda bolt, tup: bolt.collector.fail(tup, "no"))
    builder.set_bolt("sink", fails, 2).fields_grouping("mine", ["value"])
    jobs = TopologyJobs(SparkHere(), builder.build()._programs(2)["mine"], None, has_records=True)
    leaves_none = FirstStageOfTuples(shipped=jobs.shipped)
    share = packed_share([GivenTuple(0, ["a"], "default", is_tracked=True)], {})
    with pytest.raises(HandlerKilledWorker, match="the records that failed are gone"):
        jobs.run("lost", [share], leaves_none, ticks=NO_TICKS)


def text_of(record: Record) -> tuple[str]:
    return (record.data.decode(),)


def carried(shard_id: str) -> WorkSlice:
    """Three records that have come with the job; one of two shards has a bad one."""
    plan = SlicePlan(
        kind=SliceKind.CARRIED,
        shard_id=shard_id,
        epoch=1,
        position=Position.trim_horizon(),
        limit=10,
        max_failures=10,
    )
    kinds = ("good", "bad" if shard_id in {"shard-1-0", "shard-2-1"} else "good", "good")
    return WorkSlice(
        plan=plan,
        records=tuple(
            Record(
                data=f"{kind} of {shard_id}".encode(),
                sequence_number=str(at),
                partition_key="",
                shard_id=shard_id,
            )
            for at, kind in enumerate(kinds, 1)
        ),
    )


@pytest.mark.parametrize("ackers", [None, 3])
def test_slices_of_several_tasks_have_trees_of_their_own(ackers: int | None) -> None:
    def fails_bad(bolt: Scripted, tup: Tuple) -> None:
        if tup[0].startswith("bad"):
            bolt.collector.fail(tup, "bad")
        else:
            bolt.collector.ack(tup)

    builder = TopologyBuilder()
    builder.set_spout("mine", Quiet())
    builder.set_bolt("sink", Scripted(fails_bad), 2).fields_grouping("mine", ["value"])
    program = builder.build(ackers=ackers)._programs(2)["mine"]
    jobs = TopologyJobs(SparkHere(), program, None, has_records=True)
    first = FirstStage(
        shipped=jobs.shipped,
        settings=task_settings(StreamClient(InMemoryStream("orders"))),
        to_values=PickledHandler.of(text_of),
    )
    packs = [[carried(f"shard-{task}-{at}") for at in range(2)] for task in range(3)]

    found = jobs.run("several", packs, first, ticks=NO_TICKS)

    failed = {
        result.plan.shard_id: [unfinished.record.data for unfinished in result.unfinished]
        for result in found.slices
    }
    assert failed == {
        "shard-0-0": [],
        "shard-0-1": [],
        "shard-1-0": [b"bad of shard-1-0"],
        "shard-1-1": [],
        "shard-2-0": [],
        "shard-2-1": [b"bad of shard-2-1"],
    }
