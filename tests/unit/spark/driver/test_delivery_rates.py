"""The micro-batch engine within rates of deliveries: what it plans, and what goes on meanwhile."""

import threading
from collections.abc import Iterator, Sequence
from time import monotonic

import pytest

from kinesis_spout.model.record import Record
from tests.support.waiting import wait_until
from tests.unit.spark.driver.world import FIRST, SECOND, Diary, EngineWorld, KillsWorker


@pytest.fixture
def two_shards() -> Iterator[EngineWorld]:
    made = EngineWorld(shards=2)
    yield made
    made.close()


class Timed(Diary):
    """Also notes when. Mutable."""

    def __init__(self, **outcomes: Sequence[BaseException | None]) -> None:
        super().__init__(**outcomes)
        self.times: list[float] = []

    def __call__(self, record: Record) -> None:
        self.times.append(monotonic())
        super().__call__(record)

    def most_within(self, seconds: float) -> int:
        return max(sum(begin <= at < begin + seconds for at in self.times) for begin in self.times)


def texts(count: int) -> list[str]:
    return [f"text-{number}" for number in range(count)]


def test_no_span_has_more_deliveries_than_its_rate_and_two_windows(world: EngineWorld) -> None:
    world.put(*texts(130))
    diary = Timed()
    running = world.start(diary, max_deliveries_per_second=40)
    diary.until(texts(130))

    assert sorted(diary.payloads) == sorted(texts(130))
    assert diary.times[-1] - diary.times[0] >= 2.0, "130 at 40 a second"
    for seconds in (0.1, 0.5, 1.0, 2.0):
        assert diary.most_within(seconds) <= 40 * seconds + 80
    most = max(sum(work.plan.most_deliveries for work in batch) for batch in running.runner.batches)
    assert most <= 40


def test_less_than_one_a_second_works_and_waits_without_jobs(world: EngineWorld) -> None:
    world.put(*texts(3))
    diary = Timed()
    begun_at = monotonic()
    running = world.start(diary, max_deliveries_per_second=0.8)
    diary.until(texts(3))

    # A job may deliver long after its grant, so that two deliveries may be close; grants are 1.25 s apart.
    waited = [at - begun_at for at in diary.times]
    assert [seconds >= 1.25 * number for number, seconds in enumerate(waited)] == [True] * 3
    assert [[work.plan.most_deliveries for work in batch] for batch in running.runner.batches] == [[1]] * 3
    assert len(running.runner.batches) == 3, "nothing is tried while the rate is used up"


def test_commits_go_on_and_records_arrive_while_the_rate_holds_back(world: EngineWorld) -> None:
    first, *_ = world.put(*texts(5))
    diary = Diary()
    running = world.start(diary, max_deliveries_per_second=0.01)
    world.until_stored(first)

    commits, beats = running.consumer.counters.commits, running.consumer.sharing.is_settled
    assert beats
    assert commits >= 1
    assert running.engine._planner.grants.due_at is not None
    assert diary.payloads == ["text-0"]
    assert running.query.status["message"].endswith(" s for the rate of deliveries")
    assert running.query.isActive
    running.stop()
    assert world.stored().base == first.sequence


def test_a_stop_and_the_loss_of_shards_are_not_held_up_by_the_rate(world: EngineWorld) -> None:
    world.put(*texts(5))
    diary = Diary()
    running = world.start(diary, max_deliveries_per_second=0.01)
    diary.until(["text-0"])
    begun_at = monotonic()
    running.stop()
    assert monotonic() - begun_at < 30
    assert not running.query.isActive


def test_a_shard_whose_slices_take_long_does_not_have_all_of_the_rate(two_shards: EngineWorld) -> None:
    world, release, held = two_shards, threading.Event(), threading.Event()
    diary = Diary()

    def handle(record: Record) -> None:
        if record.data.startswith(b"slow"):
            held.set()
            assert release.wait(60)
        diary(record)

    running = world.start(handle, max_deliveries_per_second=20, engine={"shards_per_task": 1})
    shards = running.engine._shards.by_id
    wait_until(
        lambda: len(shards) == 2 and min(s.view.tip_seen_at for s in shards.values()) > 0,
        "both tips are seen",
    )
    world.put_in(FIRST, *(f"slow-{number}" for number in range(50)))
    assert held.wait(60)
    world.put_in(SECOND, "quick-0", "quick-1", "quick-2")
    diary.until(["quick-0", "quick-1", "quick-2"])
    assert not any(payload.startswith("slow") for payload in diary.payloads)
    release.set()


def test_retries_count_and_dead_letters_are_written(world: EngineWorld) -> None:
    world.put(*texts(20))
    no = ValueError("no")
    outcomes: dict[str, Sequence[BaseException | None]] = {"text-3": [no] * 4, "text-7": [no, None]}
    diary = Timed(**outcomes)
    world.start(diary, max_deliveries_per_second=30, retry_limit=2)
    wait_until(lambda: len(world.dead_letters.letters) == 1, "one is given up")
    diary.until(texts(20))

    assert diary.attempts("text-3") == [1, 2, 3]
    assert diary.attempts("text-7") == [1, 2]
    assert diary.most_within(1.0) <= 60


def test_records_that_always_fail_do_not_starve_the_others(world: EngineWorld) -> None:
    world.put(*texts(12))
    bad = {f"text-{number}": [ValueError("no")] * 1_000 for number in range(4)}
    diary = Diary(**bad)
    world.start(diary, max_deliveries_per_second=12, retry_limit=None, max_spared_seconds=0)
    diary.until(texts(12))


def test_a_worker_that_dies_gives_back_what_it_was_granted(world: EngineWorld) -> None:
    world.put(*texts(10))

    class Once(Diary):
        def __call__(self, record: Record) -> None:
            super().__call__(record)
            if self.attempts("text-4") == [1] and record.data == b"text-4":
                raise KillsWorker

    diary = Once()
    running = world.start(diary, max_deliveries_per_second=10)
    diary.until(texts(10))
    wait_until(lambda: running.consumer.manager.unresolved == 0, "all are finished")
    wait_until(lambda: running.consumer.deliveries._out == 0, "nothing is granted any more")
    assert running.engine._planner.grants._of == {}


def test_two_members_share_the_rate_of_the_application(two_shards: EngineWorld) -> None:
    world = two_shards
    for shard_id in (FIRST, SECOND):
        world.put_in(shard_id, *(f"{shard_id}-{number}" for number in range(60)))
    diary = Timed()
    running = [world.start(diary, max_total_deliveries_per_second=30) for _ in range(2)]
    wait_until(lambda: len(diary.payloads) >= 120, "all are delivered")

    assert all(len(each.consumer.manager.owned) == 1 for each in running)
    assert diary.most_within(1.0) <= 60 + 2
    assert diary.times[-1] - diary.times[0] >= 2.0


def test_without_records_a_rate_costs_no_jobs_and_no_turns(world: EngineWorld) -> None:
    diary = Diary()
    running = world.start(diary, max_deliveries_per_second=5)
    wait_until(lambda: running.engine._shards.by_id[FIRST].view.tip_seen_at > 0, "the tip is seen")
    batches = len(running.runner.batches)
    assert running.engine._planner.grants.due_at is None
    world.put("news")
    diary.until(["news"])
    assert len(running.runner.batches) <= batches + 1
