"""Records put together with one ticket, and records put without one."""

import asyncio
import random
import sys
import threading
import time
from typing import Any

import pytest

from kinesis_spout import KinesisProducer
from kinesis_spout.kinesis.aggregated_record import take_apart
from kinesis_spout.model.errors import (
    BufferFull,
    InvalidRecord,
    KinesisError,
    ProducerClosed,
    RecordDropped,
    SpoolError,
    Throttled,
)
from kinesis_spout.producer import FailedRecord
from kinesis_spout.testing import (
    InMemoryDeadLetterSink,
    InMemorySpoolFolder,
    SteppedProducer,
)
from tests.support.kinesis.in_memory_client import client_error
from tests.support.kinesis.writable import THROTTLED, WritableKinesis
from tests.support.waiting import DEADLINE_SECONDS, wait_until

pytestmark = pytest.mark.no_second_run


def stepped(kinesis: WritableKinesis, **options: Any) -> SteppedProducer:
    return SteppedProducer("s", client=kinesis.client, **options)


def some(count: int, keys: int = 7, size_bytes: int = 20) -> list[tuple[bytes, str]]:
    return [(str(number).zfill(size_bytes).encode(), f"key-{number % keys}") for number in range(count)]


def on_stream(kinesis: WritableKinesis) -> list[tuple[bytes, str]]:
    found = []
    for call in kinesis.calls:
        for sent in call:
            if sent.taken:
                parts = take_apart(sent.data)
                found += (
                    [(sent.data, sent.key)]
                    if parts is None
                    else [(part.data, part.partition_key) for part in parts]
                )
    return found


@pytest.mark.parametrize("aggregation", [False, True])
def test_one_ticket_ends_when_all_of_its_records_are_on_the_stream(*, aggregation: bool) -> None:
    kinesis = WritableKinesis(s=3)
    producer = stepped(kinesis, aggregation=aggregation, aggregation_max_bytes=1_024)
    called: list[object] = []
    records = some(2_000)
    ticket = producer.put_many(records)
    ticket.add_done_callback(called.append)
    assert (ticket.done(), ticket.count, called) == (False, 2_000, [])
    producer.flush()
    assert (ticket.done(), ticket.failures(), called) == (True, {}, [ticket])
    ticket.result()
    assert sorted(on_stream(kinesis)) == sorted(records)
    for key in {key for _, key in records}:
        assert [each for each in on_stream(kinesis) if each[1] == key] == [
            each for each in records if each[1] == key
        ]


@pytest.mark.parametrize("keys", [1, 3, 400])
def test_aggregates_are_as_large_as_they_may_be_and_no_larger(keys: int) -> None:
    kinesis = WritableKinesis(s=2)
    producer = stepped(kinesis, aggregation=True, aggregation_max_bytes=10_240)
    producer.put_many(some(3_000, keys, size_bytes=100))
    producer.put(b"x", "key-0")
    producer.flush()
    sizes = [len(sent.data) for call in kinesis.calls for sent in call]
    assert max(sizes) <= 10_240
    assert sum(sizes) / 10_240 > 0.8 * (len(sizes) - 2)


@pytest.mark.parametrize("aggregation", [False, True])
def test_records_of_batches_and_single_ones_share_aggregates_and_keep_the_order_of_their_key(
    *, aggregation: bool
) -> None:
    kinesis = WritableKinesis(s=1)
    producer = stepped(kinesis, aggregation=aggregation)
    producer.put_many([(b"1", "k"), (b"2", "k")])
    single = producer.put(b"3", "k")
    producer.send(b"4", "k")
    producer.put_many([(b"5", "k", 7), (b"6", "k")])
    producer.send(b"7", "k", explicit_hash_key="7")
    producer.send("8é".encode(), "ké")
    producer.flush()
    assert [data for data, _ in on_stream(kinesis)] == [
        b"1",
        b"2",
        b"3",
        b"4",
        b"5",
        b"6",
        b"7",
        "8é".encode(),
    ]
    assert len(kinesis.calls[0]) == (1 if aggregation else 8)
    assert single.result().sub_sequence_number == (2 if aggregation else None)


@pytest.mark.parametrize("aggregation", [False, True])
def test_the_ticket_names_the_places_of_failed_records_and_their_errors(*, aggregation: bool) -> None:
    kinesis = WritableKinesis(s=2)
    bad = kinesis.shard_of("s", "key-0")
    kinesis.refuses = lambda _stream, shard, _record: THROTTLED if shard == bad else None
    sink = InMemoryDeadLetterSink()
    producer = stepped(
        kinesis,
        aggregation=aggregation,
        dead_letters=sink,
        delivery_timeout_seconds=3,
        aggregation_max_bytes=1_024,
    )
    records = some(100)
    ticket = producer.put_many(records)
    producer.flush()
    failed = [place for place, (_, key) in enumerate(records) if kinesis.shard_of("s", key) == bad]
    assert 0 < len(failed) < 100
    failures = ticket.failures()
    assert list(failures) == failed
    assert {type(error) for error in failures.values()} == {Throttled}
    with pytest.raises(
        Throttled, match=rf"{len(failed)} of 100 records failed, first the one at {failed[0]}:"
    ):
        ticket.result()
    assert sorted(letter.data for letter in sink.letters) == sorted(records[place][0] for place in failed)
    counts = producer.counts()
    assert (counts.put, counts.sent, counts.failed, counts.dead_lettered) == (
        100,
        100 - len(failed),
        len(failed),
        len(failed),
    )


def test_aggregates_that_a_resharding_misplaced_are_put_again_record_by_record() -> None:
    kinesis = WritableKinesis(s=1)
    producer = stepped(kinesis, aggregation=True, aggregation_max_bytes=1_024)
    producer.put_many(some(10))
    producer.flush()
    kinesis.reshard("s", 3)
    kinesis.calls.clear()
    records = some(300)
    ticket = producer.put_many(records)
    producer.flush()
    assert ticket.failures() == {}
    assert set(on_stream(kinesis)) == set(records)
    assert producer.counts().sent == 310


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ((b"x", ""), "record 1 of 2, counted from 0: partition_key: expected 1 to 256 characters, got 0"),
        (("text", "k"), "record 1 of 2, counted from 0: data: expected bytes, got str"),
        ((b"x", "k", -1), "record 1 of 2, counted from 0: explicit_hash_key: expected a number"),
        (
            (b"x",),
            "record 1 of 2, counted from 0: expected data and partition key, and perhaps explicit hash",
        ),
        (b"xy", "record 1 of 2, counted from 0: expected data and partition key, .* got bytes"),
    ],
)
def test_one_record_that_no_stream_takes_refuses_all_and_is_named(record: Any, said: str) -> None:
    producer = stepped(WritableKinesis(s=1))
    with pytest.raises(InvalidRecord, match=said):
        producer.put_many([(b"good", "k"), record])
    assert producer.counts().put == 0


def test_no_records_are_a_ticket_that_has_ended() -> None:
    producer = stepped(WritableKinesis(s=1))
    assert producer.put_many([]).done()
    assert producer.put_many([]).failures() == {}


def test_what_has_no_room_is_refused_as_a_whole_and_what_is_larger_than_the_buffer_needs_an_empty_one() -> (
    None
):
    producer = stepped(WritableKinesis(s=1), when_full="refuse", max_buffered_records=10)
    producer.put(b"x", "k")
    with pytest.raises(BufferFull, match="expected room for 10 records, got 1 records of 2 bytes"):
        producer.put_many(some(10))
    assert producer.counts().refused == 10
    producer.flush()
    ticket = producer.put_many(some(50))
    assert producer.counts().waiting == 50
    producer.flush()
    assert ticket.failures() == {}


def test_the_oldest_are_dropped_for_records_put_together() -> None:
    producer = stepped(WritableKinesis(s=1), when_full="drop_oldest", max_buffered_records=10)
    old = producer.put_many(some(10))
    new = producer.put_many(some(4))
    producer.flush()
    assert list(old.failures()) == [0, 1, 2, 3]
    assert {type(error) for error in old.failures().values()} == {RecordDropped}
    assert new.failures() == {}


def test_a_record_that_was_refused_before_counts_once_for_the_room_that_it_would_make() -> None:
    kinesis = WritableKinesis(s=2)
    kinesis.refuses = lambda _stream, shard, _: THROTTLED if shard == "s-0-1" else None
    producer = stepped(kinesis, when_full="drop_oldest", max_buffered_records=4, linger_seconds=0.0)
    old = producer.put(b"old", "k", explicit_hash_key=1 << 127)
    while producer.step():  # until its shard has refused it
        pass
    producer.put_many([(b"new", "k", 0)] * 3)
    assert producer.next_work() is not None  # these are in a call now
    with pytest.raises(BufferFull):
        producer.put_many(some(2))
    assert not old.done()


def test_failures_of_records_without_a_ticket_are_reported_one_by_one() -> None:
    kinesis = WritableKinesis(s=1)
    failed: list[FailedRecord] = []

    def report(record: FailedRecord) -> None:
        failed.append(record)
        raise RuntimeError("it is logged, and the others are reported")

    producer = stepped(kinesis, on_failure=report, delivery_timeout_seconds=1)
    producer.send(b"good", "k")
    producer.flush()
    assert not failed
    kinesis.refuses = lambda *_: THROTTLED
    producer.send(b"1", "k")
    producer.send(b"2", "k", explicit_hash_key=3)
    producer.flush()
    assert [(each.data, each.partition_key, each.explicit_hash_key) for each in failed] == [
        (b"1", "k", None),
        (b"2", "k", "3"),
    ]
    assert {type(each.error) for each in failed} == {Throttled}
    assert (producer.counts().sent, producer.counts().failed) == (1, 2)


def test_close_fails_what_was_not_sent_in_time_and_the_closed_one_takes_nothing() -> None:
    kinesis = WritableKinesis(s=1)
    kinesis.refuses = lambda *_: THROTTLED
    failed: list[FailedRecord] = []
    producer = stepped(kinesis, on_failure=failed.append, aggregation=True)
    ticket = producer.put_many(some(3))
    producer.send(b"x", "k")
    producer.close(0)
    assert [type(error) for error in ticket.failures().values()] == [ProducerClosed] * 3
    assert [type(each.error) for each in failed] == [ProducerClosed]
    with pytest.raises(ProducerClosed):
        producer.put_many(some(1))
    with pytest.raises(ProducerClosed):
        producer.send(b"x", "k")


@pytest.mark.parametrize("aggregation", [False, True])
def test_a_spool_keeps_records_put_together_until_they_are_on_the_stream(*, aggregation: bool) -> None:
    kinesis = WritableKinesis(s=2)
    folder = InMemorySpoolFolder()
    spool = folder.open()
    producer = stepped(kinesis, spool=spool, aggregation=aggregation)
    producer.put_many(some(5))
    producer.send(b"quiet", "k")
    spool.crash()
    second = stepped(kinesis, spool=folder.open(), aggregation=aggregation)
    second.put_many(some(9))
    second.flush()
    assert (second.counts().recovered, second.counts().sent) == (6, 15)
    assert len(on_stream(kinesis)) == 15
    second.close()
    third = stepped(kinesis, spool=folder.open())
    third.flush()
    assert third.counts().recovered == 0
    folder.refuses_for = "a full disk"
    with pytest.raises(SpoolError, match="a full disk"):
        third.put_many(some(2))
    assert third.counts().refused == 2


def test_tickets_of_batches_can_be_awaited() -> None:
    async def run() -> None:
        async with KinesisProducer("s", client=WritableKinesis(s=1).client) as producer:
            ticket = await producer.put_many_async(some(10))
            await producer.send_async(b"x", "k")
            await ticket
            assert ticket.failures(0) == {}
            with pytest.raises(TimeoutError):
                (await producer.put_many_async(some(1))).failures(0)
        assert producer.counts().sent == 12

    asyncio.run(run())


def test_a_call_that_fails_for_good_fails_all_of_its_records() -> None:
    kinesis = WritableKinesis(other=1)
    producer = stepped(kinesis)
    ticket = producer.put_many(some(3))
    producer.flush()
    assert [type(error).__name__ for error in ticket.failures().values()] == ["StreamNotFound"] * 3
    assert all(isinstance(error, KinesisError) for error in ticket.failures().values())
    assert repr(ticket) == "<BatchTicket 3 records ended, 3 failed>"


@pytest.mark.parametrize("aggregation", [False, True])
@pytest.mark.parametrize("share", [0.001, 0.05, 0.3])
def test_refused_records_and_failed_calls_at_a_rate_lose_nothing_and_keep_the_order_of_keys(
    share: float, *, aggregation: bool
) -> None:
    kinesis = WritableKinesis(s=4)
    chance = random.Random(4711)
    failed_calls = 0

    def fail(*_: Any) -> None:
        nonlocal failed_calls
        if chance.random() < share:
            failed_calls += 1
            raise client_error("InternalFailure", "PutRecords", status=500)

    kinesis.before_call = fail
    kinesis.refuses = lambda *_: THROTTLED if chance.random() < share else None
    producer = stepped(
        kinesis,
        aggregation=aggregation,
        aggregation_max_bytes=1_024,
        order="key",
        max_records_per_call=20,
        delivery_timeout_seconds=3_600,
    )
    records = some(4_000, keys=500)
    tickets = [producer.put_many(records[at : at + 400]) for at in range(0, 4_000, 400)]
    producer.flush()
    assert [ticket.failures() for ticket in tickets] == [{}] * 10
    refused = sum(not sent.taken for call in kinesis.calls for sent in call)
    if share > 0.001 or not aggregation:  # there are few aggregates
        assert refused, "some were refused"
    if share > 0.001:
        assert failed_calls, "some calls failed"
    assert producer.counts().retried >= refused
    by_key: dict[str, list[bytes]] = {}
    for data, key in on_stream(kinesis):
        by_key.setdefault(key, []).append(data)
    for key, found in by_key.items():
        assert found == [each for each, of in records if of == key]
    assert len(by_key) == 500


def test_a_large_batch_gets_room_although_others_put_all_the_time() -> None:
    kinesis = WritableKinesis(s=1)
    kinesis.before_call = lambda *_: time.sleep(0.01)
    is_over = threading.Event()
    with KinesisProducer(
        "s",
        client=kinesis.client,
        max_buffered_records=100,
        max_records_per_call=10,
        max_concurrent_calls=2,
        block_timeout_seconds=DEADLINE_SECONDS,
    ) as producer:

        def put_on_and_on() -> None:
            while not is_over.is_set():
                producer.put(b"x", "key")

        threads = [threading.Thread(target=put_on_and_on) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            wait_until(lambda: producer.counts().waiting == 100, "the buffer is full")
            for _ in range(3):
                producer.put_many(some(60))
        finally:
            is_over.set()
            for thread in threads:
                thread.join()
    assert producer.counts().failed == producer.counts().refused == 0


def test_nothing_lingers_while_a_batch_that_needs_more_than_half_of_the_buffer_waits_for_room() -> None:
    kinesis = WritableKinesis(s=1)
    producer = stepped(kinesis, linger_seconds=60, block_timeout_seconds=1.0, max_buffered_records=100)
    producer.put_many(some(45))
    producer.put_many(some(60))
    producer.flush()
    assert len(on_stream(kinesis)) == 105


def test_a_record_without_a_ticket_that_a_close_overtakes_is_reported() -> None:
    failed: list[FailedRecord] = []
    kinesis, folder = WritableKinesis(s=1), InMemorySpoolFolder()
    spool = folder.open()
    producer = stepped(kinesis, spool=spool, on_failure=failed.append)
    append = spool.append

    def slowly(*entries: Any) -> int:
        producer._buffer.shut()  # as the end of ``close``, whose time is over
        return append(*entries)

    spool.append = slowly  # type: ignore[method-assign]
    producer.send(b"x", "key")
    assert [(each.data, type(each.error)) for each in failed] == [(b"x", ProducerClosed)]


@pytest.mark.parametrize("aggregation", [False, True])
def test_a_batch_of_which_a_record_waits_does_not_keep_the_data_of_those_on_the_stream(
    *, aggregation: bool
) -> None:
    kinesis = WritableKinesis(s=2)
    slow = kinesis.shard_of("s", "key-0")
    fast = next(f"key-{number}" for number in range(1, 99) if kinesis.shard_of("s", f"key-{number}") != slow)
    kinesis.refuses = lambda _stream, shard, _record: THROTTLED if shard == slow else None
    producer = stepped(kinesis, aggregation=aggregation, aggregation_max_bytes=1_024, linger_seconds=0)
    data = [str(number).zfill(50).encode() for number in range(1_000)]
    before = sum(map(sys.getrefcount, data))
    ticket = producer.put_many([(each, fast) for each in data] + [(b"x", "key-0")])
    while producer.counts().waiting > 1:
        producer.step()
    kinesis.calls.clear()
    assert sum(map(sys.getrefcount, data)) <= before + 10
    assert not ticket.done()
    kinesis.refuses = lambda *_: None
    producer.flush()
    assert (ticket.count, ticket.failures()) == (1_001, {})
