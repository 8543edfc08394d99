"""What people look at in a REPL says what it is and how it is, and no secret."""

from collections.abc import Iterator
from typing import Any

import pytest

from kinesis_spout import KinesisSpout
from kinesis_spout.model.errors import HandlerKilledWorker
from kinesis_spout.plain.record_spout import RecordSpout
from kinesis_spout.spark import ArrowCollector, Collector, each_record
from kinesis_spout.spark.tasks.jobs import HandlerBroken
from tests.support.consumer.world import World
from tests.support.waiting import wait_until
from tests.unit.spark.driver.world import Diary, EngineWorld

SECRET = "sesame-open"
CREDENTIALS: dict[str, Any] = {
    "aws_access_key_id": SECRET,
    "aws_secret_access_key": SECRET,
    "aws_session_token": SECRET,
}


@pytest.fixture
def queries() -> Iterator[EngineWorld]:
    world = EngineWorld()
    yield world
    world.close()


def test_the_status_of_a_stopped_query_says_that_it_stopped(queries: EngineWorld) -> None:
    running = queries.start(Diary())
    assert "Stopped" not in running.query.status["message"]
    running.query.stop()
    assert running.query.status == {"message": "Stopped", "isDataAvailable": False, "isTriggerActive": False}


def test_a_stopped_query_that_left_a_batch_behind_is_at_no_work(queries: EngineWorld) -> None:
    queries.put("a")
    running = queries.start(Diary(), hanging=True, stop_timeout_seconds=0, engine={"abandon_seconds": 0.1})
    running.runner.cancels_missed = 1_000_000
    wait_until(lambda: running.runner.hanging, "a batch is under way")
    assert running.query.status["isTriggerActive"]
    running.query.stop()
    assert running.query.status == {"message": "Stopped", "isDataAvailable": False, "isTriggerActive": False}


def test_the_status_of_a_query_that_an_error_ended_names_the_error(queries: EngineWorld) -> None:
    queries.put("a")
    running = queries.start(Diary(), hanging=True)
    running.runner.failures = [HandlerBroken("no module named 'orders'")]
    running.runner.open_gate()
    wait_until(lambda: not running.query.isActive, "the query has ended")

    message = "Terminated with exception: HandlerBroken: no module named 'orders'"
    ended = {"message": message, "isDataAvailable": False, "isTriggerActive": False}
    assert running.query.status == ended
    running.query.stop()
    assert running.query.status == ended


def test_a_query_shows_what_it_reads_for_whom_and_how_it_is(queries: EngineWorld) -> None:
    queries.put("a")
    running = queries.start(Diary(), hanging=True, **CREDENTIALS)
    wait_until(lambda: running.runner.hanging, "a batch is under way")
    shown = "SpoutQuery(name='test', stream='orders', app='billing', status={!r})"
    assert repr(running.query) == shown.format("Running 1 micro-batches")
    running.runner.open_gate()
    running.query.stop()
    assert repr(running.query) == shown.format("Stopped")


@pytest.mark.parametrize("kind", [RecordSpout, KinesisSpout])
def test_a_spout_shows_what_it_reads_for_whom_and_how_it_is(kind: type[RecordSpout]) -> None:
    settings: dict[str, Any] = {"stream": "orders", "app": "billing", **CREDENTIALS}
    spout = kind(ports=World().ports(), **settings)
    shown = f"{kind.__name__}(stream='orders', app='billing', state={{!r}})"

    assert repr(spout) == shown.format("new")
    spout.activate()
    assert repr(spout) == shown.format("active")
    spout.deactivate()
    assert repr(spout) == shown.format("deactivated")
    spout.close()
    assert repr(spout) == shown.format("closed")


def test_collectors_show_how_many_rows_they_were_told_of() -> None:
    collector, arrow_collector = Collector(), ArrowCollector(3)
    collector.fail([{"shardId": "shard", "sequenceNumber": "1"}], "no amount")
    arrow_collector.fail([0, 2], HandlerKilledWorker("no amount"))
    assert repr(collector) == "Collector(failed=1)"
    assert repr(arrow_collector) == "ArrowCollector(rows=3, failed=2)"


def test_the_function_for_foreach_batch_shows_whose_it_is_and_where_its_letters_go() -> None:
    function = each_record(print, app="billing", dead_letters="hdfs://nodes/dead", **CREDENTIALS)
    assert repr(function) == "each_record(app='billing', dead_letters='hdfs://nodes/dead')"
