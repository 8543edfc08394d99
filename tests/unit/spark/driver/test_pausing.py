"""The micro-batch engine while practically everything fails."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from kinesis_spout.model.errors import HandlerKilledWorker
from kinesis_spout.model.record import Record
from kinesis_spout.spark.tasks.jobs import HandlerRaised
from tests.support.waiting import wait_until
from tests.unit.spark.driver.world import Death, EngineWorld, KillsWorker, RunningQuery


@pytest.fixture
def world() -> Iterator[EngineWorld]:
    made = EngineWorld(shards=2)
    yield made
    made.close()


class Mendable:
    """A handler that fails every record until it is mended. Mutable."""

    def __init__(self) -> None:
        self.mended = False
        self.acked: list[str] = []

    def __call__(self, record: Record) -> None:
        if not self.mended:
            raise ValueError(f"no database for {record.data.decode()}")
        self.acked.append(record.data.decode())


def put(world: EngineWorld, count: int) -> set[str]:
    payloads = [f"secret-{number}" for number in range(count)]
    for payload in payloads:
        world.put(payload, key=payload)
    return set(payloads)


def paused(running: RunningQuery) -> None:
    wait_until(lambda: running.query.breaker_pause is not None, "the query pauses")


@pytest.mark.parametrize("order", ["unordered", "key"])
def test_a_handler_that_is_broken_for_every_record_costs_none_of_them(world: EngineWorld, order: str) -> None:
    payloads, handler = put(world, 3_000), Mendable()
    running = world.start(handler, retry_limit=0, order=order)
    paused(running)
    assert running.query.status["message"].startswith("Paused: ")
    handler.mended = True
    wait_until(lambda: set(handler.acked) == payloads, "all are acked")
    wait_until(lambda: running.consumer.manager.unresolved == 0, "all are finished")
    assert world.dead_letters.letters == []
    assert running.query.breaker_pause is None
    running.stop()


def test_with_an_order_by_shard_the_first_records_are_given_up_until_there_are_enough_outcomes(
    world: EngineWorld,
) -> None:
    put(world, 300)
    running = world.start(Mendable(), retry_limit=0, order="shard")
    paused(running)
    assert len(world.dead_letters.letters) < 50
    running.stop()


def test_while_it_pauses_one_record_is_tried_at_a_time_and_nothing_is_given_up(world: EngineWorld) -> None:
    put(world, 300)
    running = world.start(Mendable(), retry_limit=0)
    paused(running)
    tried_before = len(running.runner.batches)
    wait_until(
        lambda: (pause := running.query.breaker_pause) is not None and pause.probes_failed >= 2,
        "two probes failed",
    )
    probes = running.runner.batches[tried_before:]
    assert all(sum(work.plan.limit for work in batch) == 1 for batch in probes[1:])
    running.stop()
    assert world.dead_letters.letters == []


def test_the_next_query_does_not_pause_for_what_failed_at_the_one_before(world: EngineWorld) -> None:
    put(world, 400)
    acked: set[str] = set()
    deliveries: list[str] = []

    def handle(record: Record) -> None:
        payload = record.data.decode()
        deliveries.append(payload)
        if int(payload.partition("-")[2]) % 2:
            raise ValueError("bad for ever")
        acked.add(payload)

    running = world.start(handle, retry_backoff_seconds=60.0)
    wait_until(lambda: len(deliveries) == 400, "all were delivered")
    wait_until(lambda: running.consumer.manager.idle, "all have settled")
    running.stop()
    again = world.start(handle, retry_backoff_seconds=60.0)
    wait_until(lambda: len(deliveries) == 600, "what failed was delivered again")
    wait_until(lambda: again.consumer.manager.idle, "it has settled")
    assert again.query.breaker_pause is None
    world.put("secret-1000", key="fresh")
    wait_until(lambda: "secret-1000" in acked, "a fresh record goes through")
    assert again.query.breaker_pause is None
    again.stop()


def test_an_operator_ends_the_pause_by_the_handle(world: EngineWorld) -> None:
    payloads, handler = put(world, 300), Mendable()
    running = world.start(handler, retry_limit=3)
    paused(running)
    handler.mended = True
    assert running.query.resume()
    wait_until(lambda: set(handler.acked) == payloads, "all are acked")
    assert not running.query.resume()
    running.stop()


def test_an_operator_ends_the_pause_from_another_process(world: EngineWorld) -> None:
    put(world, 300)
    running = world.start(Mendable(), retry_limit=None)
    paused(running)
    operator = world.zookeeper.process("operator").coordinator
    wait_until(lambda: bool(operator.pauses()), "the pause is shown")
    (notice,) = operator.pauses().values()
    assert notice.startswith("paused: ")
    assert "ValueError at " in notice
    assert "secret-" not in notice
    resumed: list[str] = []
    records = logging.Handler()
    records.emit = lambda record: resumed.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("kinesis_spout.consumer.pause_reports")
    log.addHandler(records)
    before = log.level
    log.setLevel(logging.INFO)
    try:
        assert len(operator.resume()) == 1
        wait_until(lambda: "resumed, as an operator said" in resumed, "the query is told")
    finally:
        log.removeHandler(records)
        log.setLevel(before)
    running.stop()


def test_the_first_traceback_of_a_kind_is_logged_once_and_without_data(
    world: EngineWorld, caplog: pytest.LogCaptureFixture
) -> None:
    put(world, 40)
    with caplog.at_level(logging.INFO):
        running = world.start(Mendable(), retry_limit=0)
        wait_until(lambda: len(world.dead_letters.letters) == 40, "all are dead-lettered")
        wait_until(lambda: "dead-lettered" in caplog.text, "it is logged")
        running.stop()
    (failure,) = [record for record in caplog.records if "a handler failed with" in record.getMessage()]
    assert failure.levelno == logging.WARNING
    assert "ValueError at" in failure.getMessage()
    assert 'raise ValueError(f"no database' in failure.getMessage()
    assert not any("secret-" in record.getMessage() for record in caplog.records)
    letter = world.dead_letters.letters[0]
    assert letter.error.startswith("ValueError: no database for secret-")
    assert letter.traceback is not None
    assert "test_pausing.py" in letter.traceback
    (count,) = running.query.failures.values()
    assert count == 40


def test_progress_counts_what_became_of_the_records_and_says_that_it_pauses(world: EngineWorld) -> None:
    handler = Mendable()
    handler.mended = True
    payloads = put(world, 10)
    running = world.start(handler, retry_limit=0)
    wait_until(lambda: set(handler.acked) == payloads, "all are acked")
    handler.mended = False
    put(world, 300)
    paused(running)
    running.stop()
    progress = running.query.recentProgress
    assert progress[-1]["paused"].startswith("paused: ")
    assert progress[0]["paused"] is None
    totals = progress[-1]["totals"]
    for name in ("delivered", "acked", "retried", "timedOut", "deadLettered"):
        assert sum(each["outcomes"][name] for each in progress) == totals[name]
    assert totals["acked"] == 10
    assert totals["retried"] + totals["deadLettered"] + totals["acked"] == totals["delivered"]


def test_a_stop_while_it_pauses_stores_what_is_finished_and_loses_nothing(world: EngineWorld) -> None:
    payloads, handler = put(world, 300), Mendable()
    running = world.start(handler, retry_limit=0)
    paused(running)
    running.stop()
    handler.mended = True
    again = world.start(handler, retry_limit=0)
    wait_until(lambda: set(handler.acked) == payloads, "all are acked")
    again.stop()
    assert world.dead_letters.letters == []


def test_without_the_breaker_everything_is_given_up_as_before(world: EngineWorld) -> None:
    put(world, 300)
    settings: dict[str, Any] = {"breaker_failure_ratio": None}
    running = world.start(Mendable(), retry_limit=0, **settings)
    wait_until(lambda: len(world.dead_letters.letters) == 300, "all are dead-lettered")
    assert running.query.breaker_pause is None
    running.stop()


@pytest.mark.parametrize("blind", [None, HandlerRaised, HandlerKilledWorker])
def test_a_handler_that_ends_its_whole_job_each_time_gives_up_fewer_records_than_the_breaker_looks_at(
    world: EngineWorld, blind: Death | None
) -> None:
    put(world, 400)

    def handle(_: Record) -> None:
        raise KillsWorker

    running = world.start(
        handle, blind=blind, retry_limit=0, breaker_window=20, engine={"quick_deaths": 10_000}
    )
    paused(running)
    running.stop()
    assert len(world.dead_letters.letters) < 20
