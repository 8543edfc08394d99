"""Runs of records: handed out and acked without the lock, and yet as if each had been decided upon by itself."""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kinesis_spout.consumer.gathering_lock import GatheringLock
from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.plain.record_spout import RecordSpout
from kinesis_spout.plain.stream_tuples import Emitted, StreamTuples
from kinesis_spout.testing import (
    InMemoryStream,
    InMemoryStreams,
    InMemoryZooKeeper,
    ManualClock,
    SteppedSpout,
    in_memory_ports,
)
from shard_state import Run, StateManager
from tests.support.waiting import DEADLINE_SECONDS, wait_until

pytestmark = pytest.mark.no_second_run

KEYS = ("a", "b", "c")


class UnsteppedSpout(SteppedSpout):
    """A spout whose ``next_tuple`` does nothing that threads would do; ``do_what_is_due`` does it."""

    next_tuple = RecordSpout.next_tuple


class Scene:
    """A stream with two shards, and one spout after the other."""

    def __init__(self, **others: object) -> None:
        self.clock = ManualClock()
        self.stream = InMemoryStream("orders", shards=2, clock=self.clock)
        self.zookeeper = InMemoryZooKeeper()
        self.settings = {
            "order": "unordered",
            "retry_backoff_seconds": 1.0,
            "max_spared_seconds": 0,
            "retry_limit": None,
            "message_timeout_seconds": 60.0,
            **others,
        }
        self.open()

    def open(self) -> None:
        self.spout = UnsteppedSpout(
            ports=in_memory_ports(self.stream, self.zookeeper),
            stream="orders",
            app="billing",
            initial_position="trim_horizon",
            **self.settings,  # type: ignore[arg-type] # they are names of settings
        )
        self.spout.activate()
        self.step()

    def step(self) -> None:
        self.clock.advance(1.0)
        self.spout.do_what_is_due()

    def take(self) -> list[Emitted]:
        taken = []
        while (emitted := self.spout.next_tuple()) is not None:
            taken.append(emitted)
        return taken

    def take_and_ack(self) -> list[Emitted]:
        taken = []
        for _ in range(100):
            while (emitted := self.spout.next_tuple()) is not None:
                taken.append(emitted)
                self.spout.ack(emitted.message_id)
            self.step()
        return taken


def held_in(spout: RecordSpout) -> int:
    """How many deliveries the spout would still take an ack of without a look."""
    return sum(len(each._at_hand._out) for each in spout._opened().current.values())


def tuples_of(spout: RecordSpout) -> StreamTuples:
    return next(iter(spout._opened().current.values()))


def interrupted_by(error: type[BaseException]) -> Callable[..., None]:
    def raises(*_: object) -> None:
        raise error

    return raises


def counted_locks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let each taking of the consumer's lock add a one."""
    acquired: list[int] = []
    acquire = GatheringLock.acquire

    def counted(self: GatheringLock, timeout: float = -1) -> bool:
        acquired.append(1)
        return acquire(self, timeout)

    monkeypatch.setattr(GatheringLock, "acquire", counted)
    return acquired


def test_most_records_are_handed_out_and_acked_without_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    for number in range(400):
        scene.stream.put(b"%d" % number, "key")
    scene.step()
    acquired = counted_locks(monkeypatch)
    handed_out = 0
    while (emitted := scene.spout.next_tuple()) is not None:
        assert scene.spout.ack(emitted.message_id)
        handed_out += 1

    assert handed_out == 400
    assert len(acquired) < 200, "a lock for each record would be a thousand"


def test_what_was_handed_out_and_acked_is_counted_at_once() -> None:
    scene = Scene()
    for number in range(10):
        scene.stream.put(b"%d" % number, "key")
    scene.step()
    taken = [scene.spout.next_tuple() for _ in range(5)]
    for emitted in taken[:3]:
        assert emitted is not None
        scene.spout.ack(emitted.message_id)

    counters = scene.spout.counters
    assert (counters.delivered, counters.acked, scene.spout.uncommitted) == (5, 3, 3)
    assert sum(shard.in_flight for shard in scene.spout.shards()) == 2
    assert len(scene.take()) == 5


def test_a_second_ack_changes_nothing_and_a_late_one_cancels_the_retry() -> None:
    scene = Scene()
    scene.stream.put(b"x", "key")
    scene.step()
    emitted = scene.spout.next_tuple()
    assert emitted is not None

    assert scene.spout.fail(emitted.message_id)
    assert scene.spout.ack(emitted.message_id), "the record was handled, if late"
    assert not scene.spout.ack(emitted.message_id)
    assert not scene.spout.fail(emitted.message_id)
    scene.clock.advance(100.0)
    assert scene.take() == []


def test_a_record_of_a_run_times_out_after_it_was_handed_out() -> None:
    scene = Scene()
    for number in range(3):
        scene.stream.put(b"%d" % number, "key")
    scene.step()
    first = scene.spout.next_tuple()
    scene.clock.advance(59.0)
    second = scene.spout.next_tuple()
    assert first is not None
    assert second is not None

    scene.clock.advance(1.5)
    scene.spout.do_what_is_due()
    assert not scene.spout.fail(first.message_id), "it has timed out"
    assert scene.spout.fail(second.message_id), "it was handed out 1.5 s ago"


def test_what_is_out_of_a_run_is_retained_until_it_ends_and_no_longer() -> None:
    scene = Scene()
    for number in range(100):
        scene.stream.put(b"x" * 97 + b"%03d" % number, "key")
    scene.step()
    taken = scene.take()
    tuples = next(iter(scene.spout._opened().current.values()))
    retained = tuples.shards.retained

    def kept() -> tuple[int, int]:
        """What counts as retained, and what is in memory."""
        runs = tuples._at_hand._deadlines
        in_runs = sum(len(record.data) for run in runs for record in run.records)
        return retained.size_bytes, in_runs + 100 * len(retained)

    with tuples.consumer.lock:
        assert kept() == (100 * 103, 100 * 100)
    for each in taken[10:]:
        assert scene.spout.ack(each.message_id)
    assert scene.spout.fail(taken[0].message_id)
    with tuples.consumer.lock:
        assert kept() == (10 * 103, 10 * 100)
    still_out = scene.spout.record(taken[1].message_id)
    assert still_out is not None
    assert still_out.data == taken[1].values.data
    assert scene.spout.record(taken[99].message_id) is None
    for each in taken[:10]:
        assert scene.spout.ack(each.message_id)
    with tuples.consumer.lock:
        assert (kept(), len(tuples._at_hand._deadlines)) == ((0, 0), 0)


def test_all_that_is_open_in_a_run_times_out_together_and_once() -> None:
    scene = Scene()
    for number in range(200):
        scene.stream.put(b"%d" % number, "key")
    scene.step()
    taken = scene.take()
    open_ones = taken[::10]
    for each in taken:
        assert each in open_ones or scene.spout.ack(each.message_id)
    scene.clock.advance(59.0)
    scene.spout.do_what_is_due()
    assert scene.spout.counters.timed_out == 0
    scene.clock.advance(1.5)
    scene.spout.do_what_is_due()
    scene.spout.do_what_is_due()
    assert scene.spout.counters.timed_out == 20
    scene.clock.advance(2.0)
    again = scene.take()
    assert {each.values.data for each in again} == {each.values.data for each in open_ones}
    assert {each.values.attempt for each in again} == {2}


def test_an_ack_by_the_id_of_an_earlier_ownership_finishes_a_record_of_a_run() -> None:
    scene = Scene()
    for number in range(50):
        scene.stream.put(b"%d" % number, "key")
    scene.step()
    emitted = scene.take()[-1]
    before, hash_, _ = emitted.message_id.partition("#")

    assert scene.spout.ack(f"{before}{hash_}7.3"), "the record was handled, whoever owned the shard then"
    assert not scene.spout.ack(emitted.message_id)
    assert not scene.spout.fail(emitted.message_id)


def test_a_run_goes_on_behind_single_failures_which_are_due_from_when_they_were_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene, runs = Scene(retry_jitter=0.0), 0
    for number in range(400):
        scene.stream.put(b"%d" % number, "key")
    scene.step()
    emit_run = StateManager.emit_run

    def counted(self: StateManager, shard_id: str, run: Run) -> None:
        nonlocal runs
        runs += 1
        emit_run(self, shard_id, run)

    monkeypatch.setattr(StateManager, "emit_run", counted)
    failed = []
    while (emitted := scene.spout.next_tuple()) is not None:
        if int(emitted.values.data) % 20 == 0:
            assert scene.spout.fail(emitted.message_id)
            failed.append(emitted.message_id)
        else:
            assert scene.spout.ack(emitted.message_id)
    scene.clock.advance(1.0)
    assert len(failed) == len(scene.take()) == 20
    assert not any(scene.spout.fail(message_id) for message_id in failed), "these deliveries have failed"
    assert scene.spout.counters.acked == 380
    assert runs < 12


def test_what_was_finished_before_a_restart_is_in_no_run_after_it() -> None:
    scene = Scene()
    for number in range(200):
        scene.stream.put(b"%d" % number, "key")
    scene.step()
    for emitted in scene.take():
        if int(emitted.values.data) % 50 == 7:
            assert scene.spout.ack(emitted.message_id)
    scene.spout.close()
    scene.open()

    again = []
    for _ in range(10):
        again += [int(emitted.values.data) for emitted in scene.take()]
        scene.step()
    assert sorted(again) == sorted(set(range(200)) - {7, 57, 107, 157})


def test_while_everything_fails_few_are_tried_at_a_time_although_runs_of_many_wait() -> None:
    clock = ManualClock()
    stream = InMemoryStream("orders", shards=2, clock=clock)
    spout = UnsteppedSpout(
        ports=in_memory_ports(stream, InMemoryZooKeeper()),
        stream="orders",
        app="billing",
        initial_position="trim_horizon",
        order="unordered",
    )
    spout.activate()
    together = []
    for second in range(120):
        if second in (0, 60):  # first of one shard, whose retries are due before all else, then of both
            for number in range(500):
                stream.put(b"%d" % number, KEYS[number % 3 if second else 0])
        clock.advance(1.0)
        spout.do_what_is_due()
        tried = list(iter(spout.next_tuple, None))
        together.append(len(tried))
        for emitted in tried:
            assert spout.fail(emitted.message_id)

    assert together[0] > 100
    assert 0 < max(together[60:]) < 5
    spout.close()


def due_retries(count: int, **others: object) -> tuple[Scene, list[Emitted]]:
    """A scene in which so many records have failed and are due again, and as many others are acked."""
    scene = Scene(retry_jitter=0.0, **others)
    for number in range(count):
        scene.stream.put(b"%d" % number, "key")
        scene.stream.put(b"good", "key")
    scene.step()
    failed = []
    while (emitted := scene.spout.next_tuple()) is not None:
        if emitted.values.data == b"good":
            assert scene.spout.ack(emitted.message_id)
        else:
            assert scene.spout.fail(emitted.message_id)
            failed.append(emitted)
    scene.clock.advance(1.0)
    return scene, failed


def test_retries_that_are_due_together_are_handed_out_and_acked_without_the_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene, _ = due_retries(30)
    acquired = counted_locks(monkeypatch)
    again = []
    while (emitted := scene.spout.next_tuple()) is not None:
        assert scene.spout.ack(emitted.message_id)
        again.append(emitted)

    assert [each.values.attempt for each in again] == [2] * 30
    assert len(acquired) < 30, "a lock for each retry would be more than sixty"
    assert (scene.spout.counters.retried, scene.spout.counters.acked) == (30, 60)


def test_retries_at_hand_wait_on_for_all_who_look_and_come_as_the_same_delivery() -> None:
    scene, failed = due_retries(5)
    first = scene.spout.next_tuple()
    assert first is not None
    waiting = sum(shard.waiting for shard in scene.spout.shards())
    in_flight = sum(shard.in_flight for shard in scene.spout.shards())

    assert (waiting, in_flight) == (4, 1)
    assert scene.spout.counters.retried == 1
    others = [each for each in failed if each.values.data != first.values.data]
    still_waiting = scene.spout.record(others[0].message_id)
    assert still_waiting is not None
    assert still_waiting.attempt == 1, "it was delivered once"
    assert {(each.values.data, each.values.attempt) for each in scene.take()} == {
        (each.values.data, 2) for each in others
    }
    assert scene.spout.counters.retried == 5


def test_however_few_are_handed_out_at_once_each_retry_has_its_turn() -> None:
    scene = Scene(retry_jitter=0.0, retry_backoff_cap_seconds=1.0, max_spared_seconds=0)
    for number in range(100):
        scene.stream.put(b"%d" % number, "key")
    scene.step()
    for emitted in scene.take():
        scene.spout.fail(emitted.message_id)
    scene.clock.advance(5.0)

    again: list[int] = []
    while len(again) < 500:
        due = scene.spout.next_tuple()
        assert due is not None, "some are always due"
        again.append(int(due.values.data))
        scene.clock.advance(0.02)  # longer than records stay at hand
        scene.spout.fail(due.message_id)

    assert again == [*range(100)] * 5


def test_a_late_ack_cancels_a_retry_that_is_at_hand() -> None:
    scene, failed = due_retries(5)
    first = scene.spout.next_tuple()
    assert first is not None
    late = next(each for each in failed if each.values.data != first.values.data)

    assert scene.spout.ack(late.message_id), "the record was handled, if late"
    assert late.values.data not in {each.values.data for each in scene.take()}
    assert not scene.spout.ack(late.message_id)


def test_a_late_fail_changes_nothing_of_a_retry_that_is_at_hand() -> None:
    scene, failed = due_retries(5)
    first = scene.spout.next_tuple()
    assert first is not None
    late = next(each for each in failed if each.values.data != first.values.data)

    assert not scene.spout.fail(late.message_id), "this delivery has failed"
    assert len(scene.take()) == 4


def test_a_retry_times_out_after_it_was_handed_out() -> None:
    scene, _ = due_retries(2, message_timeout_seconds=60.0)
    first = scene.spout.next_tuple()
    scene.clock.advance(0.009)
    second = scene.spout.next_tuple()
    assert first is not None
    assert second is not None

    scene.clock.advance(59.995)
    scene.spout.do_what_is_due()
    assert scene.spout.counters.timed_out == 0, "the last was handed out 59.995 s ago"
    scene.clock.advance(0.01)
    scene.spout.do_what_is_due()
    assert scene.spout.counters.timed_out == 2


def test_nothing_of_the_retries_at_hand_is_handed_out_of_a_deactivated_spout() -> None:
    scene, _ = due_retries(5)
    assert scene.spout.next_tuple() is not None
    scene.spout.deactivate()
    assert scene.spout.next_tuple() is None
    scene.spout.activate()
    assert [each.values.attempt for each in scene.take()] == [2] * 4


def test_a_retry_that_was_at_hand_at_a_crash_has_lost_no_attempt() -> None:
    scene, _ = due_retries(5, retry_limit=1)
    first = scene.spout.next_tuple()
    assert first is not None
    scene.step()  # a commit
    scene.spout.crash()
    scene.open()
    again = scene.take()
    for each in again:
        assert scene.spout.ack(each.message_id)
    again += scene.take_and_ack()
    assert {each.values.attempt for each in again if each.values.data in {b"%d" % at for at in range(5)}} == {
        2
    }


def test_retries_of_a_lost_shard_that_were_at_hand_are_nobodys() -> None:
    scene, _ = due_retries(5)
    first = scene.spout.next_tuple()
    assert first is not None
    scene.zookeeper.expire(tuples_of(scene.spout).consumer.ports.coordinator.member)
    again: list[Emitted] = []
    while len(again) < 5:
        scene.step()
        again.extend(scene.take_and_ack())
    assert not scene.spout.fail(first.message_id)
    assert len({each.values.data for each in again} & {b"%d" % at for at in range(5)}) == 5
    assert held_in(scene.spout) == 0


def test_a_failed_retry_of_a_key_holds_up_what_waits_behind_it() -> None:
    scene = Scene(order="key", retry_jitter=0.0)
    for number in range(6):
        scene.stream.put(b"%d" % number, KEYS[number % 3])
    scene.step()
    for each in scene.take():
        assert scene.spout.fail(each.message_id)
    scene.clock.advance(1.0)
    retries = list(iter(scene.spout.next_tuple, None))
    assert [each.values.data for each in sorted(retries, key=lambda each: each.values.data)] == [
        b"0",
        b"1",
        b"2",
    ]
    for each in retries[:2]:
        assert scene.spout.ack(each.message_id)
    assert scene.spout.fail(retries[2].message_id)

    behind = [each.values.partition_key for each in scene.take()]
    assert retries[2].values.partition_key not in behind


def test_a_deactivated_spout_hands_out_nothing_of_a_run_and_an_active_one_goes_on() -> None:
    scene = Scene()
    for number in range(10):
        scene.stream.put(b"%d" % number, "key")
    scene.step()
    assert scene.spout.next_tuple() is not None
    scene.spout.deactivate()
    assert scene.spout.next_tuple() is None
    scene.spout.activate()
    assert len(scene.take()) == 9


def test_nothing_of_a_run_is_handed_out_while_zookeeper_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    for number in range(10):
        scene.stream.put(b"%d" % number, "key")
    scene.step()
    assert scene.spout.next_tuple() is not None
    tuples = next(iter(scene.spout._opened().current.values()))
    ports, certain = tuples.consumer.ports, False
    monkeypatch.setattr(tuples._at_hand, "_is_certain", lambda: certain)
    tuples.consumer.ports = replace(ports)
    monkeypatch.setattr(ports.coordinator, "is_certain", lambda: certain)
    assert scene.spout.next_tuple() is None
    certain = True
    assert len(scene.take()) == 9


def test_a_delivery_whose_record_is_finished_by_a_late_ack_can_be_acked_no_more() -> None:
    scene = Scene()
    scene.stream.put(b"x", "key")
    scene.step()
    first = scene.spout.next_tuple()
    assert first is not None
    assert scene.spout.fail(first.message_id)
    scene.clock.advance(1.5)
    second = scene.spout.next_tuple()
    assert second is not None

    assert scene.spout.ack(first.message_id), "the record was handled, if late"
    assert not scene.spout.ack(second.message_id)
    assert held_in(scene.spout) == 0


def test_several_streams_have_runs_too_and_keep_nothing_that_was_acked() -> None:
    clock = ManualClock()
    streams = InMemoryStreams(clock=clock)
    for name in ("orders", "refunds"):
        streams.create(name)
        for number in range(200):
            streams.streams[name].put(b"%d" % number, "key")
    spout = UnsteppedSpout(
        ports=streams.process(), stream="orders,refunds", app="billing", initial_position="trim_horizon"
    )
    spout.activate()
    clock.advance(1.0)
    spout.do_what_is_due()
    taken = list(iter(spout.next_tuple, None))
    assert [each.message_id.partition("/")[0] for each in taken[:4]] == ["orders", "refunds"] * 2
    assert len(taken) == 400
    for each in taken:
        assert spout.ack(each.message_id)
        assert not spout.ack(each.message_id)
    assert held_in(spout) == 0
    assert spout.counters.acked == 400
    spout.close()


def test_a_close_between_two_looks_of_another_thread_is_a_closed_spout() -> None:
    scene = Scene()
    scene.stream.put(b"x", "key")
    scene.step()
    emitted = scene.spout.next_tuple()
    assert emitted is not None
    only = scene.spout._only
    looks = iter([only])

    class Closing(UnsteppedSpout):
        """The first look at its stream is before ``close``, all others are after it."""

        _only = property(lambda _: next(looks, None), lambda *_: None)

    scene.spout.__class__ = Closing
    scene.spout.next_tuple()
    looks = iter([only])
    assert scene.spout.ack(emitted.message_id)
    scene.spout.close()


@pytest.mark.parametrize("error", [KeyboardInterrupt, OverflowError])
def test_an_interrupted_gathering_loses_nothing_and_leaves_the_lock_free(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene()
    for number in range(100):
        scene.stream.put(b"%d" % number, "key")
    scene.step()
    acked = set()
    for _ in range(10):
        emitted = scene.spout.next_tuple()
        assert emitted is not None
        scene.spout.ack(emitted.message_id)
        acked.add(emitted.values.data)
    with monkeypatch.context() as patched:
        patched.setattr(StateManager, "emit_run", interrupted_by(error))
        with pytest.raises(error):
            assert scene.spout.counters
    lock = next(iter(scene.spout._opened().current.values())).consumer.lock

    def take() -> None:
        with lock:
            pass

    other = threading.Thread(target=take, daemon=True)
    other.start()
    other.join(DEADLINE_SECONDS)
    assert not other.is_alive(), "the lock is free"

    with pytest.raises((KinesisSpoutError, OverflowError)):
        scene.spout.next_tuple()
    scene.spout.crash()
    scene.open()
    left = {each.values.data for each in scene.take_and_ack()}
    assert left | acked == {b"%d" % number for number in range(100)}


def test_one_of_an_ack_and_a_fail_at_the_same_time_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(retry_jitter=0.0)
    for number in range(3):
        scene.stream.put(b"%d" % number, "key")
    scene.step()
    taken = scene.take()
    assert scene.spout.ack(taken[1].message_id)
    acked: list[bool] = []

    def acks_meanwhile() -> float:
        monkeypatch.undo()
        acked.append(scene.spout.ack(taken[0].message_id))
        return scene.clock.monotonic()

    monkeypatch.setattr(tuples_of(scene.spout)._at_hand, "_monotonic", acks_meanwhile)
    assert scene.spout.fail(taken[0].message_id)
    assert acked == [False]
    scene.clock.advance(1.0)
    assert [each.values.data for each in scene.take()] == [b"0"]
    assert scene.spout.counters.acked == 1


def test_a_failure_whose_shard_was_lost_meanwhile_does_not_count_for_the_next_delivery(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    for number in range(2):
        scene.stream.put(b"%d" % number, "key")
    scene.step()
    first = scene.take()[0]
    again: list[Emitted] = []

    def loses_and_acquires() -> float:
        monkeypatch.undo()
        scene.zookeeper.expire(tuples_of(scene.spout).consumer.ports.coordinator.member)
        while not again:
            scene.step()
            again.extend(scene.take())
        return scene.clock.monotonic()

    monkeypatch.setattr(tuples_of(scene.spout)._at_hand, "_monotonic", loses_and_acquires)
    scene.spout.fail(first.message_id)
    assert again[0].values.data == first.values.data
    assert again[0].message_id != first.message_id
    assert sum(shard.waiting for shard in scene.spout.shards()) == 0
    assert scene.spout.fail(again[0].message_id), "this delivery has not failed"


class Interrupted(deque[Any]):
    """As if Ctrl-C had come while a record was taken from it, or put into it."""

    def popleft(self) -> Any:
        super().popleft()
        raise KeyboardInterrupt

    def append(self, _: object) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("step", ["next_tuple", "ack", "fail"])
def test_a_record_whose_hand_out_or_outcome_was_interrupted_times_out(step: str) -> None:
    scene = Scene()
    for number in range(3):
        scene.stream.put(b"%d" % number, "key")
    scene.step()
    first, at_hand = scene.spout.next_tuple(), tuples_of(scene.spout)._at_hand
    assert first is not None
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(at_hand, "_waiting", Interrupted(at_hand._waiting))
        patched.setattr(at_hand, "_ended", Interrupted())
        with pytest.raises(KeyboardInterrupt):
            scene.spout.next_tuple() if step == "next_tuple" else getattr(scene.spout, step)(first.message_id)
        left = at_hand._waiting
    at_hand._waiting = deque(left)
    out = {each.values.data for each in scene.take()} | ({b"0"} if step == "next_tuple" else set())
    (interrupted,) = {b"0", b"1", b"2"} - out
    for _ in range(2):
        scene.clock.advance(60.0)
        scene.spout.do_what_is_due()
    assert scene.spout.counters.timed_out == 3
    scene.clock.advance(2.0)
    again = scene.take()
    assert interrupted in {each.values.data for each in again}
    for each in again:
        assert scene.spout.ack(each.message_id)
    assert scene.spout.counters.acked == 3


def test_a_failure_holds_up_what_is_at_hand_of_its_key() -> None:
    scene = Scene(order="key")
    for number in range(6):
        scene.stream.put(b"%d" % number, "ab"[number % 2])
    scene.step()
    of_a = next(each for each in iter(scene.spout.next_tuple, None) if each.values.partition_key == "a")
    assert scene.spout.fail(of_a.message_id)

    later = [each.values.partition_key for each in scene.take()]
    assert "a" not in later


class Histories(RuleBasedStateMachine):
    """In any order of hand-outs, acks, fails, commits, crashes nothing is lost, or comes twice without a cause."""

    @initialize(order=st.sampled_from(("unordered", "key", "shard")), most=st.sampled_from((3, 20_000)))
    def begin(self, order: str, most: int) -> None:
        self.order = order
        self.scene = Scene(order=order, max_pending=most, message_timeout_seconds=3_600.0)
        self.put_so_far = 0
        self.out: dict[bytes, str] = {}
        self.known: list[str] = []
        self.acked: set[bytes] = set()
        self.failed: set[bytes] = set()
        self.data_of: dict[str, bytes] = {}
        self.failures = Counter[bytes]()
        self.before_crash = 0
        """So many records were put before the last crash: how often these have failed is not known here."""

    @rule(count=st.integers(1, 40))
    def put(self, count: int) -> None:
        for _ in range(count):
            self.scene.stream.put(b"%d" % self.put_so_far, KEYS[self.put_so_far % 3])
            self.put_so_far += 1

    @rule(seconds=st.sampled_from((0.0, 0.005, 0.02, 1.0, 2.0)))
    def step(self, seconds: float) -> None:
        self.scene.clock.advance(seconds)
        self.scene.spout.do_what_is_due()

    @rule(count=st.integers(1, 50), acks=st.booleans())
    def take(self, count: int, *, acks: bool) -> None:
        for _ in range(count):
            emitted = self.scene.spout.next_tuple()
            if emitted is None:
                return
            data = emitted.values.data
            assert data not in self.acked, "an acked record does not come again without a crash"
            assert data not in self.out, "a record in flight does not come again"
            if self.order == "key":
                key = emitted.values.partition_key
                earlier = [each for each in self.failed if int(each) < int(data)]
                assert not any(KEYS[int(each) % 3] == key for each in earlier), "it waits behind its key"
            if int(data) >= self.before_crash:
                assert emitted.values.attempt == 1 + self.failures[data], "each failure is one delivery"
            self.out[data] = emitted.message_id
            self.data_of[emitted.message_id] = data
            self.known.append(emitted.message_id)
            if acks:
                self._ack(emitted.message_id)

    @rule(at=st.floats(0, 0.999))
    @precondition(lambda self: bool(self.out))
    def ack(self, at: float) -> None:
        self._ack([*self.out.values()][int(at * len(self.out))])

    @rule(at=st.floats(0, 0.999))
    @precondition(lambda self: bool(self.known))
    def ack_again(self, at: float) -> None:
        message_id = self.known[int(at * len(self.known))]
        data = self.data_of[message_id]
        if data in self.acked:
            assert not self.scene.spout.ack(message_id)

    @rule(at=st.floats(0, 0.999))
    @precondition(lambda self: bool(self.out))
    def fail(self, at: float) -> None:
        data = [*self.out][int(at * len(self.out))]
        assert self.scene.spout.fail(self.out.pop(data))
        self.failed.add(data)
        self.failures[data] += 1

    @rule()
    def crash(self) -> None:
        self.scene.spout.crash()
        self.before_crash = self.put_so_far
        self.failed.clear()
        self.out.clear()
        self.known.clear()
        self.acked.clear()  # as far as no commit has them
        self.scene.open()

    @invariant()
    def counts_agree(self) -> None:
        in_flight = sum(shard.in_flight for shard in self.scene.spout.shards())
        assert 0 <= in_flight - len(self.out) <= 1, "one may be noted, and not handed out yet; see Caution"

    def teardown(self) -> None:
        stored = Counter[bytes]()
        for _ in range(self.put_so_far + 20):
            for message_id in [*self.out.values()]:
                self._ack(message_id)
            self.scene.step()
            while (emitted := self.scene.spout.next_tuple()) is not None:
                stored[emitted.values.data] += 1
                assert self.scene.spout.ack(emitted.message_id)
            if self.scene.spout.all_done:
                break
        assert self.scene.spout.all_done, "everything is finished in the end"
        self.scene.spout.close()

    def _ack(self, message_id: str) -> None:
        data = self.data_of[message_id]
        assert self.scene.spout.ack(message_id)
        self.out.pop(data, None)
        self.acked.add(data)
        self.failed.discard(data)


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_threads_share_runs_and_nothing_is_lost_or_comes_twice() -> None:
    stream = InMemoryStream("orders", shards=2)
    for number in range(4_000):
        stream.put(b"%d" % number, f"key-{number}")
    ports, seen, wrong = in_memory_ports(stream, InMemoryZooKeeper()), Counter[str](), list[str]()
    new = RecordSpout(
        ports=ports,
        scheme="text",
        stream="orders",
        app="billing",
        initial_position="trim_horizon",
        retry_backoff_seconds=0.01,
    )
    with new.open() as spout:

        def work() -> None:
            while sum(seen.values()) < 4_000 and not wrong:
                emitted = spout.next_tuple()
                if emitted is None:
                    time.sleep(0.001)
                elif emitted.values.endswith("7") and emitted.message_id.endswith(".1"):
                    wrong.extend(["fail"] * (not spout.fail(emitted.message_id)))
                else:
                    with lock:
                        seen[emitted.values] += 1
                    acked = spout.ack(emitted.message_id), spout.ack(emitted.message_id)
                    wrong.extend(["ack"] * (acked != (True, False)))

        lock = threading.Lock()
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_SECONDS)
        assert wrong == []
        assert (len(seen), max(seen.values())) == (4_000, 1)
        assert (spout.counters.acked, spout.counters.delivered) == (4_000, 4_400)
        wait_until(lambda: spout.uncommitted == 0, "all is stored")
