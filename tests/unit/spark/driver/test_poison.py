"""A record that kills its worker hurts only itself (invariant 19)."""

from collections import Counter

import pytest

from kinesis_spout.model.errors import HandlerKilledWorker
from kinesis_spout.spark.driver.engine_settings import EngineSettings
from kinesis_spout.spark.tasks.jobs import HandlerRaised
from tests.support.waiting import wait_until
from tests.unit.spark.driver.world import FIRST, SECOND, Diary, EngineWorld, KillsWorker, texts

ALWAYS = [KillsWorker()] * 1_000
PATIENT = {"death_backoff_seconds": 3_600.0, "death_backoff_cap_seconds": 3_600.0}
"""A test whose shard rests does not end in time."""


SHARDS = 2


def neighbours(diary: Diary) -> Counter[str]:
    counts = Counter(diary.payloads)
    del counts["poison"]
    return counts


def test_what_a_dead_task_noted_spares_every_neighbour_a_second_delivery(world: EngineWorld) -> None:
    world.put_in(FIRST, *texts(300), "poison", *texts(300, "s"))
    world.put_in(SECOND, *texts(50, "other"))
    diary = Diary(poison=ALWAYS, r7=[ValueError("once")])
    running = world.start(diary, retry_limit=2, engine=PATIENT)
    running.query.processAllAvailable()

    assert diary.attempts("poison") == [1, 2, 3]
    assert diary.attempts("r7") == [1, 2]
    counts = neighbours(diary)
    del counts["r7"]
    assert (len(counts), set(counts.values())) == (649, {1})
    assert [(letter.data, letter.attempts) for letter in world.dead_letters.letters] == [(b"poison", 3)]
    assert running.query.counters.acked == 650


@pytest.mark.parametrize("order", ["key", "shard"])
def test_later_records_wait_for_one_that_killed_its_worker(world: EngineWorld, order: str) -> None:
    world.put_in(FIRST, "before", "poison", "after")
    diary = Diary(poison=ALWAYS)
    running = world.start(diary, retry_limit=1, order=order)
    running.query.processAllAvailable()

    assert diary.deliveries == [("before", 1), ("poison", 1), ("poison", 2), ("after", 1)]


def test_two_killers_in_one_slice_cost_their_neighbours_nothing(world: EngineWorld) -> None:
    world.put_in(FIRST, *texts(20), "poison", "r", "worse", *texts(20, "s"))
    diary = Diary(poison=ALWAYS, worse=ALWAYS)
    running = world.start(diary, retry_limit=1)
    running.query.processAllAvailable()

    counts = Counter(diary.payloads)
    assert (counts.pop("poison"), counts.pop("worse")) == (2, 2)
    assert set(counts.values()) == {1}


@pytest.mark.parametrize("death", [HandlerKilledWorker, HandlerRaised])
def test_a_killer_that_nobody_saw_is_found_by_halving_without_a_rest(world: EngineWorld, death: type) -> None:
    world.put_in(FIRST, *texts(700), "poison", *texts(300, "s"))
    world.put_in(SECOND, *texts(50, "other"))
    diary = Diary(poison=ALWAYS)
    running = world.start(diary, retry_limit=0, blind=death, engine=PATIENT)
    running.query.processAllAvailable()

    assert [letter.data for letter in world.dead_letters.letters] == [b"poison"]
    assert len(running.runner.batches) <= 16
    counts = neighbours(diary)
    assert len(counts) == 1_050
    assert max(count for text, count in counts.items() if text.startswith("other")) <= 2


def test_the_shard_goes_on_while_its_suspects_are_halved(world: EngineWorld) -> None:
    world.put_in(FIRST, *texts(64), "poison")
    diary = Diary(poison=ALWAYS)
    running = world.start(diary, hanging=True, retry_limit=0, blind=HandlerRaised)
    runner = running.runner

    def is_out(batches: int) -> bool:
        return runner.hanging == 1 and len(runner.batches) == batches

    wait_until(lambda: is_out(1), "the page is out")
    runner.let_one_pass()
    wait_until(lambda: is_out(2), "the page is out again, alone")
    runner.let_one_pass()
    wait_until(lambda: is_out(3), "half of it is out")
    world.put_in(FIRST, "fresh")
    wait_until(lambda: runner.hanging == 2, "suspects and what is fresh are out together")
    runner.open_gate()
    running.query.processAllAvailable()

    assert "fresh" in diary.payloads
    assert [letter.data for letter in world.dead_letters.letters] == [b"poison"]


def test_an_outage_is_not_taken_for_a_stream_full_of_poison(world: EngineWorld) -> None:
    """No job ends well. A few records are blamed, then the shards rest, longer and longer."""
    world.put_in(FIRST, *texts(200))
    diary = Diary(**dict.fromkeys(texts(200), ALWAYS))
    running = world.start(diary, retry_limit=0, blind=HandlerKilledWorker, engine=PATIENT)
    wait_until(lambda: running.engine._settling.deaths > 16, "jobs die")
    wait_until(lambda: not running.engine._running.batches, "and no other begins")

    assert len(world.dead_letters.letters) <= 2
    with running.consumer.lock:
        assert running.engine._shards.by_id[FIRST].times.out_at > running.consumer.now + 1_000


def test_a_handler_that_kills_every_worker_is_slowed_down_as_well(world: EngineWorld) -> None:
    world.put_in(FIRST, *texts(200))
    running = world.start(Diary(**dict.fromkeys(texts(200), ALWAYS)), retry_limit=0, engine=PATIENT)
    wait_until(lambda: running.engine._settling.deaths > 16, "workers die")
    wait_until(lambda: not running.engine._running.batches, "and no other begins")

    assert len(world.dead_letters.letters) <= 18


def test_rests_begin_after_the_quick_deaths_and_double_up_to_a_cap() -> None:
    settings = EngineSettings(
        parallelism=lambda: 1,
        shards_per_task=1,
        max_concurrent_batches=1,
        records_per_fetch=1,
        poll_seconds=1.0,
        idle_poll_seconds=1.0,
        max_buffered_bytes=1,
        batch_timeout_seconds=None,
    )
    assert [settings.rest_after(deaths) for deaths in (1, 16, 17, 18, 19, 40)] == [0, 0, 0.5, 1, 2, 30]


def test_what_is_left_of_a_page_is_carried_and_not_read_again(world: EngineWorld) -> None:
    """Each slice has time for one record only."""
    world.put_in(FIRST, *texts(20))
    diary = Diary()
    running = world.start(diary, task={"max_seconds": 0.0, "max_left_bytes": 10_000})
    running.query.processAllAvailable()

    assert diary.payloads == texts(20)
    assert world.client.calls <= 4
