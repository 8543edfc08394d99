"""When the engine reads what is pushed, and how it paces the jobs that carry it. Nothing is polled here."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

import pytest

from kinesis_spout.ports import Page, ShardGetter
from kinesis_spout.spark.driver.driver_shards import DriverShard
from kinesis_spout.spark.tasks.work import WorkSlice
from kinesis_spout.testing import InMemoryShardGetter
from shard_state import Position
from tests.support.waiting import wait_until
from tests.unit.spark.driver.world import FIRST, NEVER, SECOND, Diary, EngineWorld, RunningQuery

NO_REST = 0.0


class PushedGetter(InMemoryShardGetter):
    """Never worth asking, unless somebody says that something was pushed."""

    notify: Callable[[], None]
    hangs: threading.Event | None = None
    """Reads wait for it."""
    reads = 0

    @property
    def ready_at(self) -> float:
        return monotonic() + NEVER

    def when_ready(self, call: Callable[[], None]) -> None:
        self.notify = call

    def read(self, limit: int) -> Page:
        page = super().read(limit)
        self.reads += 1
        if self.hangs is not None:
            assert self.hangs.wait(30)
        return replace(page, says_nothing=not page.records and not page.at_end)


class Pushing:
    """An engine to which records are pushed."""

    def __init__(self, shards: int) -> None:
        self.world = EngineWorld(shards=shards)
        self.world.fresh_getter = self._open
        self.getters: dict[str, PushedGetter] = {}
        """The newest of each shard."""
        self.diary = Diary()

    def start(self, *, spacing_seconds: float, **engine: Any) -> RunningQuery:
        settings = {
            "driver_reads_all": True,
            "spacing_seconds": spacing_seconds,
            "poll_seconds": NEVER,
            "idle_poll_seconds": NEVER,
        }
        running = self.world.start(self.diary, engine=settings | engine)
        shard_ids = {shard.shard_id for shard in self.world.stream.list_shards()}
        wait_until(
            lambda: shard_ids == {shard_id for shard_id, getter in self.getters.items() if getter.reads},
            "every shard was read once",
        )
        wait_until(lambda: not running.engine._tip.is_polling, "nothing is being read")
        return running

    def push(self, shard_id: str, *payloads: str) -> None:
        self.world.put_in(shard_id, *payloads)
        self.getters[shard_id].notify()

    def _open(self, shard_id: str, position: Position) -> ShardGetter:
        getter = PushedGetter(self.world.stream, shard_id, position)
        self.getters[shard_id] = getter
        return getter


@pytest.fixture
def pushing() -> Iterator[Pushing]:
    pushing = Pushing(shards=2)
    yield pushing
    pushing.world.close()


def shard_of(running: RunningQuery, shard_id: str) -> DriverShard:
    return running.engine._shards.by_id[shard_id]


def payloads(batch: Sequence[WorkSlice]) -> list[str]:
    return sorted(record.data.decode() for work in batch for record in work.records)


def batches(running: RunningQuery) -> list[list[str]]:
    return [payloads(batch) for batch in list(running.runner.batches)]


def hold_first(pushing: Pushing, running: RunningQuery) -> None:
    """Have a job of the first shard hang."""
    running.runner.gate.clear()
    pushing.push(FIRST, "a")
    wait_until(lambda: running.runner.hanging, "the job of the first record hangs")


def end_rest(running: RunningQuery) -> None:
    with running.consumer.lock:
        running.engine._tip.rests_until = running.consumer.now
        for shard_id, shard in running.engine._shards.by_id.items():
            running.engine._tip.came(shard_id, shard)
    running.engine.resumed()


def test_what_is_pushed_while_a_slice_is_out_is_read_as_soon_as_that_has_ended(pushing: Pushing) -> None:
    running = pushing.start(spacing_seconds=NO_REST)
    hold_first(pushing, running)

    pushing.push(FIRST, "b")
    wait_until(lambda: shard_of(running, FIRST).has_news, "the engine knows of the second record")
    running.runner.open_gate()

    pushing.diary.until(["a", "b"])


def test_a_lone_record_goes_out_at_once_and_the_next_one_waits_for_the_rest_to_end(pushing: Pushing) -> None:
    running = pushing.start(spacing_seconds=NEVER)
    pushing.push(FIRST, "a")
    pushing.diary.until(["a"])

    pushing.push(SECOND, "b")
    wait_until(lambda: shard_of(running, SECOND).has_news, "the engine knows of the second record")
    assert shard_of(running, SECOND).times.poll_at == running.engine._tip.rests_until
    assert batches(running) == [["a"]]
    end_rest(running)
    pushing.diary.until(["b"])


def test_what_is_pushed_during_the_rest_goes_out_in_one_job(pushing: Pushing) -> None:
    running = pushing.start(spacing_seconds=NEVER, gather_seconds=NEVER)
    pushing.push(FIRST, "a")
    pushing.diary.until(["a"])
    wait_until(lambda: running.query.counters.acked == 1, "the first record is settled")
    for number in range(3):
        pushing.push(FIRST, f"b{number}")
        pushing.push(SECOND, f"c{number}")
    wait_until(lambda: shard_of(running, SECOND).has_news, "the engine knows of them")

    end_rest(running)
    pushing.diary.until(["b2", "c2"])

    assert batches(running) == [["a"], ["b0", "b1", "b2", "c0", "c1", "c2"]]


def test_what_is_pushed_joins_what_waits_for_a_job(pushing: Pushing) -> None:
    running = pushing.start(spacing_seconds=NO_REST, max_concurrent_batches=1)
    hold_first(pushing, running)

    pushing.push(SECOND, "b")
    wait_until(lambda: shard_of(running, SECOND).records, "a record waits")
    pushing.push(SECOND, "c")
    wait_until(lambda: len(shard_of(running, SECOND).records) == 2, "another one joins it")
    running.runner.open_gate()
    pushing.diary.until(["b", "c"])

    assert batches(running) == [["a"], ["b", "c"]]


def test_other_shards_do_not_wait_for_a_job_that_takes_long(pushing: Pushing) -> None:
    """Invariant 15."""
    running = pushing.start(spacing_seconds=0.01)
    hold_first(pushing, running)

    pushing.push(SECOND, "b")
    wait_until(lambda: running.runner.hanging == 2, "another job runs beside the first")
    running.runner.open_gate()
    pushing.diary.until(["a", "b"])


def test_what_did_not_fit_into_a_page_is_read_although_nothing_more_is_pushed(pushing: Pushing) -> None:
    pushing.start(spacing_seconds=NO_REST, records_per_fetch=2)
    names = [f"r{number}" for number in range(5)]

    pushing.push(FIRST, *names)

    pushing.diary.until(names)
    assert pushing.diary.payloads == names


def test_what_is_read_behind_records_that_were_dropped_is_read_again(pushing: Pushing) -> None:
    """Invariant 14: a page that follows on what is not there any more would hide it."""
    running = pushing.start(spacing_seconds=NO_REST, max_concurrent_batches=1)
    hold_first(pushing, running)
    pushing.push(SECOND, "b")
    shard = shard_of(running, SECOND)
    wait_until(lambda: shard.records, "a record waits")
    getter = pushing.getters[SECOND]
    before, getter.hangs = getter.reads, threading.Event()
    pushing.push(SECOND, "c")
    wait_until(lambda: getter.reads > before, "what follows on it is being read")
    with running.consumer.lock:
        shard.drop_page()
    getter.hangs.set()
    running.runner.open_gate()

    pushing.diary.until(["b", "c"])

    assert pushing.diary.payloads == ["a", "b", "c"]


def test_the_tip_ends_no_bounded_run_while_records_of_the_shard_wait(
    pushing: Pushing, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = pushing.start(spacing_seconds=NO_REST, max_concurrent_batches=1)
    hold_first(pushing, running)
    pushing.push(SECOND, "b")
    shard, getter = shard_of(running, SECOND), pushing.getters[SECOND]
    wait_until(lambda: shard.records, "a record waits")
    ended: list[str] = []
    monkeypatch.setattr(running.consumer.manager, "ends_at_tip", lambda shard_id, _: ended.append(shard_id))
    at_tip = Page(records=(), size_bytes=0, millis_behind_latest=0, at_end=False)
    monkeypatch.setattr(getter, "read", lambda _: at_tip)
    before = shard.view.tip_seen_at

    getter.notify()
    wait_until(lambda: shard.view.tip_seen_at > before, "an event said that nothing follows on it")

    assert ended == []


def test_lost_shards_give_their_bytes_back(pushing: Pushing) -> None:
    running = pushing.start(spacing_seconds=NO_REST, max_concurrent_batches=1)
    hold_first(pushing, running)
    pushing.push(SECOND, "b" * 1_000)
    held = running.engine._shards.held
    wait_until(lambda: held.size_bytes > 1_000, "both shards hold records")

    with running.consumer.lock:
        assert held.size_bytes == sum(shard.size_bytes for shard in running.engine._shards.by_id.values())
        running.engine.shards_lost([SECOND])
        assert held.size_bytes == shard_of(running, FIRST).size_bytes
        running.engine.shards_lost([FIRST])
        assert held.size_bytes == 0
