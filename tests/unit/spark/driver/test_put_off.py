"""Records that a handler puts off: no attempt, and nothing that goes round for ever."""

import pytest

from kinesis_spout.model.handler import NotNow
from kinesis_spout.model.record import Record
from kinesis_spout.recipes import KeyedRate
from tests.support.waiting import wait_until
from tests.unit.spark.driver.world import Diary, EngineWorld

pytestmark = pytest.mark.no_second_run


@pytest.mark.parametrize("order", ["unordered", "key", "shard"])
def test_a_record_that_is_put_off_burns_no_attempt(world: EngineWorld, order: str) -> None:
    *_, last = world.put("a", "b", "c")
    diary = Diary(b=[NotNow(0.01)] * 6 + [ValueError("no"), NotNow(0.01), None])
    world.start(diary, retry_limit=1, order=order)
    world.until_stored(last)

    assert len(diary.attempts("b")) == 9
    assert world.dead_letters.letters == []


def test_what_is_tried_and_fails_is_given_up_as_ever(world: EngineWorld) -> None:
    world.put("a")
    diary = Diary(a=[NotNow(0.01), ValueError("one"), NotNow(0.01), ValueError("two"), None])
    world.start(diary, retry_limit=1)
    wait_until(lambda: len(world.dead_letters.letters) == 1, "it is given up")
    assert len(diary.attempts("a")) == 4


def test_after_a_thousand_times_it_counts(world: EngineWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shard_state.local_shard.local_shard_state.MOST_PUT_OFF", 5)
    world.put("a")
    diary = Diary(a=[NotNow(0.001)] * 1_000)
    world.start(diary, retry_limit=2)
    wait_until(lambda: len(world.dead_letters.letters) == 1, "it is given up")
    assert len(diary.attempts("a")) == 5 + 3


def test_a_handler_that_puts_off_practically_everything_is_no_trouble(world: EngineWorld) -> None:
    texts = [f"text-{number}" for number in range(300)]
    *_, last = world.put(*texts)
    diary = Diary(**{text: [NotNow(0.05)] for text in texts})
    running = world.start(diary, retry_limit=0)
    world.until_stored(last)
    assert running.query.trouble is None
    assert running.consumer.counters.acked == 300
    assert world.dead_letters.letters == []


def test_a_rate_for_each_key_holds_and_every_record_is_handled(world: EngineWorld) -> None:
    *_, last = world.put("a1", "a2", "a3", "b1")
    rate, diary = KeyedRate(10), Diary()

    def handle(record: Record) -> None:
        key = record.data.decode()[0]
        if not rate.try_acquire(key):
            raise NotNow(rate.wait_seconds(key))
        diary(record)

    running = world.start(handle, retry_limit=0, order="key")
    world.until_stored(last)
    assert diary.payloads[0] == "a1"
    assert sorted(diary.payloads) == ["a1", "a2", "a3", "b1"]
    assert running.consumer.counters.given_up == 0
