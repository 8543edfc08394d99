"""How an exchange is written."""

import logging
from typing import Any

import pytest

from kinesis_spout.model.errors import HandlerKilledWorker
from kinesis_spout.storm import TopologyBuilder
from kinesis_spout.storm.running.clocks import NO_TICKS
from kinesis_spout.storm.spark.job import TopologyJobs
from kinesis_spout.storm.spark.stages import FirstStageOfTuples, GivenTuple, packed_share
from tests.support.spark.spark_here import SparkHere
from tests.support.storm.scripted_topology import Declared, Scripted, acks


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
