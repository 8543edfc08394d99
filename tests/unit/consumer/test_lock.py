"""What a consumer's lock guards is touched under it only: whoever does not hold it is found.

``ConsumerState`` says what is guarded. Here each of these things looks, whenever the package reads or sets a
public attribute of it, whether the caller holds the lock; from the start of the consumer to its end.
"""

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kinesis_spout.consumer.consumer_state import ConsumerState
from kinesis_spout.model.handler import Reject, RetryLater
from kinesis_spout.model.record import Record
from tests.support.consumer.world import FIRST, SECOND, World
from tests.support.waiting import wait_until
from tests.unit.spark.driver.world import EngineWorld

pytestmark = pytest.mark.no_second_run

GUARDED = ("manager", "sharing", "counters", "failures", "figures", "read_errors", "letters")
FREE = {
    "bounds", "guarantee",  # of the manager; they never change
    "start", "report",  # of the sharing; they do I/O, and take the lock themselves
    "write", "say_the_rest", "write_the_last", "sink_hangs",  # of the letters; likewise
}  # fmt: skip


def watched(kind: type, state: ConsumerState, found: set[str]) -> type:
    """Give a kind of guarded thing that notes who touches it without the lock."""

    def look(name: str) -> None:
        caller = sys._getframe(2)
        is_ours = "/kinesis_spout/" in caller.f_code.co_filename
        if name.startswith("_") or name in FREE or state.listener is None or not is_ours:
            return
        if not state.lock._is_owned():  # type: ignore[attr-defined] # as threading.Condition asks
            where = f"{caller.f_code.co_filename}:{caller.f_lineno} {caller.f_code.co_qualname}"
            found.add(f"{kind.__name__}.{name} by {threading.current_thread().name}, {where}")

    class Watched(kind):  # type: ignore[misc]
        __slots__ = ()

        def __getattribute__(self, name: str) -> Any:
            look(name)
            return super().__getattribute__(name)

        def __setattr__(self, name: str, value: Any) -> None:
            look(name)
            super().__setattr__(name, value)

    return Watched


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Have every consumer watched; in the end nobody may have been found."""
    noted: set[str] = set()
    make = ConsumerState.__init__

    def made(self: ConsumerState, *args: Any, **settings: Any) -> None:
        make(self, *args, **settings)
        for name in GUARDED:
            thing = getattr(self, name)
            thing.__class__ = watched(type(thing), self, noted)

    monkeypatch.setattr(ConsumerState, "__init__", made)
    yield noted
    assert not noted, "\n".join(sorted(noted))


@pytest.mark.usefixtures("found")
def test_the_plain_door_touches_nothing_without_the_lock() -> None:
    world = World(shards=2)
    try:
        one = world.spout(retry_limit=1, message_timeout_seconds=5.0)
        world.put_in(FIRST, *(f"a{number}" for number in range(30)))
        world.put_in(SECOND, *(f"b{number}" for number in range(30)))
        for emitted in world.take(one, 40):
            if emitted.values.endswith("7"):
                one.fail(emitted.message_id, Reject("no"))
            elif not emitted.values.endswith("3"):  # which time out
                one.ack(emitted.message_id)
        world.until(lambda: world.dead_letters.letters != [], "there is a dead letter")
        two = world.spout()  # to which a shard is handed over
        world.until(lambda: any(shard.epoch > 1 for shard in two.shards()), "a shard is handed over")
        one.pause_shards(FIRST)
        one.resume_shards()
        one.resume()
        assert sorted(two.assigned.values()) == [1, 1], "both members have one shard"
        told = (one.counters, one.failures, one.last_error, one.trouble, one.paused_shards)
        assert told[0].delivered >= 40
        assert (one.uncommitted >= 0, one.is_done, one.rate_wait_seconds) == (True, False, 0.0)
        one.close()
        world.take(two, 1)
    finally:
        world.close()


@pytest.mark.usefixtures("found")
def test_a_spark_door_touches_nothing_without_the_lock() -> None:
    world = EngineWorld(shards=2)
    handled: set[str] = set()

    def handle(record: Record) -> None:
        text = record.data.decode()
        if text.endswith("7"):
            raise ValueError("no")
        if text.endswith("3") and text not in handled:
            handled.add(text)
            raise RetryLater(0.05)
        handled.add(text)

    try:
        world.put_in(FIRST, *(f"a{number}" for number in range(30)))
        world.put_in(SECOND, *(f"b{number}" for number in range(30)))
        running = world.start(handle, retry_limit=1)
        wait_until(lambda: running.query.counters.finished == 60, "all are finished")
        query = running.query
        query.pause_shards(FIRST)
        wait_until(lambda: query.paused_by_operator is not None, "it is paused")
        assert query.status["message"].startswith("Paused by an operator")
        query.resume_shards()
        query.processAllAvailable()
        assert query.lastProgress is not None
        running.stop()
    finally:
        world.close()
