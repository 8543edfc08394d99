"""What a producer does where it is used oddly: inside callbacks, cancelled, forked, closed while others put."""

import asyncio
import contextlib
import enum
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kinesis_spout import KinesisProducer
from kinesis_spout.kinesis.write.put_records import Entry
from kinesis_spout.model.errors import BufferFull, InvalidConfig, InvalidRecord, ProducerClosed, ProducerError
from kinesis_spout.producer import Ticket
from kinesis_spout.testing import InMemorySpoolFolder, SteppedProducer
from tests.model.test_producer_model import SpoolInMemory
from tests.support.kinesis.writable import THROTTLED, WritableKinesis
from tests.support.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.no_second_run

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/s"


def adds_up(producer: KinesisProducer) -> bool:
    counts = producer.counts()
    return counts.put == counts.sent + counts.failed + counts.dropped + counts.refused + counts.waiting


class GatedSpool(SpoolInMemory):
    """Appends when the gate is open."""

    def __init__(self) -> None:
        super().__init__({})
        self.gate = threading.Event()
        self.is_asked = threading.Event()

    def append(self, *entries: Entry) -> int:
        self.is_asked.set()
        assert self.gate.wait(DEADLINE_SECONDS)
        return super().append(*entries)


# What is given


@pytest.mark.parametrize(("of_spool", "is_refused"), [("s", False), (ARN, False), ("t", True)])
def test_a_spool_of_another_stream_is_refused(of_spool: str, is_refused: bool) -> None:  # noqa: FBT001 - of pytest
    def make(stream: str) -> None:
        spool = InMemorySpoolFolder(of_spool).open()
        SteppedProducer(stream, client=WritableKinesis(s=1).client, spool=spool, region="eu-west-1")

    for stream in ("s", ARN):
        if is_refused:
            with pytest.raises(InvalidConfig, match="spool: expected that of stream"):
                make(stream)
        else:
            make(stream)
    if of_spool == ARN:
        with pytest.raises(InvalidConfig):
            make(ARN.replace("123456789012", "210987654321"))


def test_a_key_of_a_subclass_of_text_is_its_text() -> None:
    class Key(str, enum.Enum):  # noqa: UP042 - its ``str`` differs, as many programs have it
        ORDERS = "orders"

    kinesis = WritableKinesis(s=1)
    producer = SteppedProducer("s", client=kinesis.client)
    assert producer.put(b"1", Key.ORDERS).partition_key == "orders"


def test_a_hash_key_of_thousands_of_digits_is_refused_like_any_that_is_too_large() -> None:
    producer = SteppedProducer("s", client=WritableKinesis(s=1).client)
    with pytest.raises(InvalidRecord, match="got 'one of 33220 bits'"):
        producer.put(b"1", "k", explicit_hash_key=10**10_000)


# What an earlier producer left


def test_new_records_that_fill_the_buffer_do_not_keep_what_is_recovered_from_being_sent() -> None:
    kinesis = WritableKinesis(s=1)
    content = {number: Entry("k", str(number).encode()) for number in range(1, 2_502)}
    producer = SteppedProducer(
        "s", client=kinesis.client, spool=SpoolInMemory(content), max_buffered_records=1
    )
    new = producer.put(b"new", "k")
    producer.flush(60.0)
    assert new.done()
    assert kinesis.taken("s") == [*(str(number).encode() for number in range(1, 2_502)), b"new"]
    assert not content


def test_a_flush_and_an_end_cover_what_an_earlier_producer_left() -> None:
    for way in (SteppedProducer.flush, SteppedProducer.close):
        kinesis, content = WritableKinesis(s=1), {1: Entry("k", b"left")}
        producer = SteppedProducer("s", client=kinesis.client, spool=SpoolInMemory(content))
        way(producer)
        assert (kinesis.taken("s"), content) == ([b"left"], {})


def test_records_that_are_recovered_after_the_end_stay_in_the_spool_and_are_not_counted() -> None:
    content = {1: Entry("k", b"left")}
    producer = SteppedProducer("s", client=WritableKinesis(s=1).client, spool=SpoolInMemory(content))
    recovery = producer.next_work()
    assert recovery is not None
    producer.close(0.0)
    producer.do(recovery)
    assert (producer.counts().waiting, producer.counts().put, len(content)) == (0, 0, 1)


# Callbacks


def test_a_callback_may_close_the_producer_whose_only_thread_it_is_on() -> None:
    kinesis = WritableKinesis(s=1)
    producer = KinesisProducer("s", client=kinesis.client, max_concurrent_calls=1, max_records_per_call=1)
    first = producer.put(b"1", "k")
    first.add_done_callback(lambda _: producer.close())
    tickets = [first]
    with contextlib.suppress(ProducerClosed):
        tickets.extend(producer.put(b"2", "k") for _ in range(20))
    assert all(ticket.result(DEADLINE_SECONDS) for ticket in tickets)
    producer.close()
    assert adds_up(producer)


def test_a_callback_puts_and_is_refused_at_once_where_it_would_wait_for_itself() -> None:
    told: list[Any] = []
    over = threading.Event()

    with KinesisProducer(
        "s", client=WritableKinesis(s=1).client, max_concurrent_calls=1, max_buffered_records=1
    ) as producer:

        def again(_: Ticket) -> None:
            told.append(producer.put(b"2", "k"))
            try:
                producer.put(b"3", "k")
            except BufferFull as error:
                told.append(error)
            try:
                producer.flush()
            except ProducerError as error:
                told.append(error)
            over.set()

        producer.put(b"1", "k").add_done_callback(again)
        assert over.wait(DEADLINE_SECONDS)
        assert told[0].result(DEADLINE_SECONDS)
    assert [type(each) for each in told[1:]] == [BufferFull, ProducerError]
    assert (producer.counts().put, producer.counts().sent, producer.counts().refused) == (3, 2, 1)


def test_a_callback_that_ends_the_program_ends_no_thread_of_the_producer() -> None:
    with KinesisProducer(
        "s", client=WritableKinesis(s=1).client, max_concurrent_calls=1, linger_seconds=0.0
    ) as producer:
        for _ in range(3):
            ticket = producer.put(b"1", "k")
            ticket.add_done_callback(lambda _: sys.exit(1))
            assert ticket.result(DEADLINE_SECONDS)
    assert producer.counts().sent == 3


def test_who_asks_a_ticket_again_and_again_leaves_nothing_with_it() -> None:
    producer = SteppedProducer("s", client=WritableKinesis(s=1).client)
    ticket = producer.put(b"1", "k")

    async def cancelled() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_awaited(ticket), 0)

    for _ in range(3):
        with pytest.raises(TimeoutError):
            ticket.result(0)
        asyncio.run(cancelled())
    assert not ticket.callbacks


async def _awaited(ticket: Ticket) -> None:
    await ticket


# Dropping


def test_who_drops_the_oldest_is_never_refused_where_many_put_and_holds_no_more_than_it_may() -> None:
    producer = SteppedProducer(
        "s", client=WritableKinesis(s=1).client, when_full="drop_oldest", max_buffered_records=50
    )

    def put_many() -> None:
        for _ in range(500):
            producer.put(data, "k")

    data = b"large"
    before = sys.getrefcount(data)
    threads = [threading.Thread(target=put_many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = producer.counts()
    assert (counts.refused, counts.dropped, counts.waiting) == (0, 1_950, 50)
    assert sys.getrefcount(data) - before < 1_200, "what was dropped is let go of"


# Ends


def test_a_record_that_is_on_its_way_into_the_spool_when_all_is_over_fails() -> None:
    spool = GatedSpool()
    kinesis = WritableKinesis(s=1)
    producer = KinesisProducer("s", client=kinesis.client, spool=spool)
    with ThreadPoolExecutor() as pool:
        ticket = pool.submit(producer.put, b"1", "k")
        assert spool.is_asked.wait(DEADLINE_SECONDS)
        producer.close(0.0)
        spool.gate.set()
        assert isinstance(ticket.result(DEADLINE_SECONDS).exception(DEADLINE_SECONDS), ProducerClosed)
    assert (producer.counts().failed, producer.counts().waiting, len(spool.content)) == (1, 0, 1)


def test_an_end_waits_for_a_record_that_is_on_its_way_into_the_spool() -> None:
    spool = GatedSpool()
    kinesis = WritableKinesis(s=1)
    producer = KinesisProducer("s", client=kinesis.client, spool=spool)
    with ThreadPoolExecutor() as pool:
        ticket = pool.submit(producer.put, b"1", "k")
        assert spool.is_asked.wait(DEADLINE_SECONDS)
        end = pool.submit(producer.close)
        spool.gate.set()
        end.result(DEADLINE_SECONDS)
        assert ticket.result(DEADLINE_SECONDS).result(0)
    assert kinesis.taken("s") == [b"1"]


def test_many_threads_put_while_it_is_closed_and_each_record_ends() -> None:
    kinesis = WritableKinesis(s=2)
    kinesis.refuses = lambda *_: THROTTLED if len(kinesis.calls) % 3 == 0 else None
    producer = KinesisProducer("s", client=kinesis.client, linger_seconds=0.0, max_buffered_records=200)
    tickets: list[Ticket] = []

    def put_until_closed() -> None:
        try:
            while True:
                tickets.append(producer.put(b"x", "k"))
        except ProducerClosed:
            return

    threads = [threading.Thread(target=put_until_closed) for _ in range(4)]
    for thread in threads:
        thread.start()
    tickets.append(producer.put(b"x", "k"))
    tickets[0].exception(DEADLINE_SECONDS)
    producer.close()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    counts = producer.counts()
    assert all(ticket.done() for ticket in tickets)
    assert (counts.waiting, counts.sent + counts.failed) == (0, len(tickets))
    assert counts.refused == 4
    assert adds_up(producer)


# Cancelling


def test_a_cancelled_put_leaves_no_room_that_nobody_uses() -> None:
    spool = GatedSpool()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(max_workers=1))
        producer = KinesisProducer(
            "s", client=WritableKinesis(s=1).client, spool=spool, max_buffered_records=2
        )
        puts = [asyncio.ensure_future(producer.put_async(b"1", "k")) for _ in range(3)]
        while producer.counts().waiting < 2:  # noqa: ASYNC110 - nothing tells of a put that waits
            await asyncio.sleep(0)
        for each in puts:
            each.cancel()
        await asyncio.wait(puts)
        assert producer.counts().refused == 1, "the one that waited for room"
        spool.gate.set()
        await producer.close_async()
        counts = producer.counts()
        assert (counts.sent, counts.refused, counts.waiting) == (2, 1, 0)

    asyncio.run(run())


def test_a_loop_that_is_closed_before_a_ticket_ends_harms_nothing() -> None:
    producer = SteppedProducer("s", client=WritableKinesis(s=1).client)
    ticket = producer.put(b"1", "k")
    loop = asyncio.new_event_loop()
    task = loop.create_task(_awaited(ticket))
    loop.run_until_complete(asyncio.wait([task], timeout=0))
    loop.close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    producer.flush()
    assert ticket.result(0)


# Forks


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_a_forked_child_leaves_the_with_statement_at_once_and_its_parent_sends() -> None:
    kinesis = WritableKinesis(s=1)
    with KinesisProducer("s", client=kinesis.client, linger_seconds=60.0) as producer:
        ticket = producer.put(b"1", "k")
        with producer._engine._lock:  # as a thread may hold it
            child = os.fork()
        if child == 0:
            try:
                producer.flush()
                producer.close()
                producer.put(b"2", "k")
            except ProducerClosed:
                os._exit(0)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    assert ticket.result(0)
