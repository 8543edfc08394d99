"""What users see of a producer: tickets, policies, time-outs, its end; threads and asyncio."""

import asyncio
import subprocess
import sys
import threading
from math import inf
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from kinesis_spout import KinesisProducer
from kinesis_spout.kinesis.aggregated_record import take_apart
from kinesis_spout.kinesis.retry_policy import STRAY_SECONDS
from kinesis_spout.kinesis.write.put_records import COMMON_RECORD_BYTES, MAX_RECORD_BYTES, Entry
from kinesis_spout.model.errors import (
    AccessDenied,
    BufferFull,
    DeadLetterError,
    InvalidConfig,
    InvalidRecord,
    KinesisError,
    ProducerClosed,
    RecordDropped,
    SpoolDamaged,
    SpoolError,
    StreamNotFound,
    Throttled,
    Unavailable,
)
from kinesis_spout.producer import Ticket
from kinesis_spout.producer.spool import DiskSpool
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.testing import InMemoryDeadLetterSink, ManualClock, SteppedProducer
from tests.model.test_producer_model import SpoolInMemory
from tests.support.kinesis.in_memory_client import client_error
from tests.support.kinesis.writable import THROTTLED, WritableKinesis
from tests.unit.kinesis.wire.servers import answer_of, running

pytestmark = pytest.mark.no_second_run

LOST = EndpointConnectionError(endpoint_url="memory:")


def stepped(kinesis: WritableKinesis, **options: Any) -> SteppedProducer:
    return SteppedProducer("s", client=kinesis.client, **options)


def put(producer: KinesisProducer, count: int, key: str | None = None) -> list[Ticket]:
    return [producer.put(str(number).encode(), key or f"key-{number}") for number in range(count)]


def never(kinesis: WritableKinesis, code: str) -> None:
    def fail(*_: Any) -> None:
        raise client_error(code, "PutRecords")

    kinesis.before_call = fail


# What put takes


@pytest.mark.parametrize(
    ("data", "key", "hash_key", "said"),
    [
        ("text", "k", None, "data: expected bytes, got str"),
        (b"", 7, None, "partition_key: expected text, got int"),
        (b"", "", None, "partition_key: expected 1 to 256 characters, got 0"),
        (b"", "k" * 257, None, "partition_key: expected 1 to 256 characters, got 257"),
        (b"", "\ud800", None, "partition_key: expected text that UTF-8 can write"),
        (bytes(MAX_RECORD_BYTES), "k", None, f"data: expected at most {MAX_RECORD_BYTES} bytes"),
        (b"", "k", 2**128, "explicit_hash_key: expected a number from 0 to 2\\^128 - 1"),
        (b"", "k", "-1", "explicit_hash_key: expected a number"),
        (b"", "k", "007", "explicit_hash_key: expected a number"),
        (b"", "k", True, "explicit_hash_key: expected a number"),
    ],
)
def test_what_no_stream_takes_is_refused_at_once_and_counted_nowhere(
    data: Any, key: Any, hash_key: Any, said: str
) -> None:
    producer = stepped(WritableKinesis(s=1))
    with pytest.raises(InvalidRecord, match=said):
        producer.put(data, key, explicit_hash_key=hash_key)
    assert producer.counts().put == 0


def test_bytes_of_any_kind_are_taken_and_a_hash_key_decides_on_the_shard() -> None:
    kinesis = WritableKinesis(s=2)
    producer = stepped(kinesis)
    buffer = bytearray(b"abc")
    first = producer.put(buffer, "k", explicit_hash_key=2**127)  # type: ignore[arg-type]
    buffer[0] = 0
    second = producer.put(memoryview(b"def"), "Zoë", explicit_hash_key="0")  # type: ignore[arg-type]
    producer.flush()
    assert [first.result().shard_id, second.result().shard_id] == ["s-0-1", "s-0-0"]
    assert kinesis.taken("s") == [b"abc", b"def"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"order": "shard"}, "order: expected one of unordered, key, got 'shard'"),
        ({"linger": 1}, "unknown keyword argument 'linger'"),
        ({"max_records_per_call": 501}, "max_records_per_call: expected int >= 1 and <= 500, got 501"),
        ({"dead_letters": "kinesis://s"}, "dead_letters: expected another stream"),
        ({"role_external_id": "x"}, "role_external_id: expected none without role_arn"),
    ],
)
def test_a_wrong_setting_is_one_clear_error(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        stepped(WritableKinesis(s=1), **options)


def test_a_producer_goes_the_way_of_a_spouts_configuration() -> None:
    config = SpoutConfig.of(
        stream="orders", app="a", region="eu-west-1", aws_access_key_id="id", aws_secret_access_key="hush"
    )
    client = WritableKinesis(orders=1).client
    producer = SteppedProducer(config=config, client=client, region="eu-west-2")
    assert (producer.config.stream, producer.config.region) == ("orders", "eu-west-2")
    assert "hush" not in repr(producer.config)


def test_without_a_configuration_the_connection_is_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "STREAM": "to-read",
        "ENDPOINT_URL": "http://localhost:4567",
        "REGION": "eu-west-1",
        "AWS_PROFILE": "ops",
    }
    for name, value in given.items():
        monkeypatch.setenv(f"KINESIS_SPOUT_{name}", value)
    client = WritableKinesis(orders=1).client
    config = SteppedProducer("orders", client=client, region="eu-west-2").config
    assert (config.stream, config.region) == ("orders", "eu-west-2"), "what is given comes first"
    assert (config.endpoint_url, config.aws_profile) == ("http://localhost:4567", "ops")
    of_spout = SpoutConfig.of(stream="s", app="a")
    assert SteppedProducer(config=of_spout, client=client).config.endpoint_url is None, (
        "a configuration is whole"
    )
    with pytest.raises(InvalidConfig, match=r"stream is required: .*KinesisProducer\("):
        SteppedProducer(client=client)
    monkeypatch.setenv("KINESIS_SPOUT_ENDPOINT_URL", "kinesis.local")
    with pytest.raises(InvalidConfig, match=r"endpoint_url \(from KINESIS_SPOUT_ENDPOINT_URL\): expected"):
        SteppedProducer("orders", client=client)


# How tickets end


def test_a_ticket_names_the_place_of_its_record() -> None:
    kinesis = WritableKinesis(s=2)
    producer = stepped(kinesis, aggregation=True)
    tickets = put(producer, 50)
    assert not tickets[0].done()
    producer.flush()
    for ticket in tickets:
        found = ticket.result()
        (sent,) = (each for each in kinesis.calls[0] if each.sequence_number == found.sequence_number)
        assert found.sub_sequence_number is not None
        parts = take_apart(sent.data)
        assert parts is not None
        assert (parts[found.sub_sequence_number].data, sent.shard) == (ticket.data, found.shard_id)
        assert found.message_id == f"{sent.shard}:{sent.sequence_number}:{found.sub_sequence_number}"


def test_a_ticket_that_does_not_end_in_time_says_so_and_goes_on() -> None:
    producer = stepped(WritableKinesis(s=1))
    (ticket,) = put(producer, 1)
    with pytest.raises(TimeoutError, match="expected the record to end within 0 s"):
        ticket.result(0)
    producer.flush()
    assert ticket.result(0).shard_id == "s-0-0"


def test_a_callback_is_called_at_once_on_a_ticket_that_has_ended() -> None:
    producer = stepped(WritableKinesis(s=1))
    (ticket,) = put(producer, 1)
    told: list[Ticket] = []
    ticket.add_done_callback(told.append)
    producer.flush()
    ticket.add_done_callback(told.append)
    assert told == [ticket, ticket]


def test_a_record_that_its_shard_refuses_until_its_time_is_over_fails_and_the_others_go_on() -> None:
    kinesis = WritableKinesis(s=2)
    kinesis.refuses = lambda _stream, shard, _: THROTTLED if shard == "s-0-1" else None
    producer = stepped(kinesis, delivery_timeout_seconds=10.0)
    tickets = put(producer, 100)
    producer.flush()
    hot = [ticket for ticket in tickets if kinesis.shard_of("s", ticket.partition_key) == "s-0-1"]
    assert producer.counts().failed == len(hot) > 0
    assert producer.counts().sent == 100 - len(hot)
    for ticket in hot:
        with pytest.raises(
            Throttled, match="expected the record to be put within 10 s, got no success; the last"
        ):
            ticket.result(0)


def test_what_was_never_answered_and_never_will_be_fails_at_once() -> None:
    kinesis, clock = WritableKinesis(s=1), ManualClock()
    for code, kind in (
        ("AccessDeniedException", AccessDenied),
        ("ResourceNotFoundException", StreamNotFound),
    ):
        never(kinesis, code)
        producer = stepped(kinesis, clock=clock, linger_seconds=0.0)
        (ticket,) = put(producer, 1)
        producer.flush()
        with pytest.raises(kind):
            ticket.result(0)
    assert clock.monotonic() == 0


def test_what_waited_for_a_record_of_its_key_goes_at_once_when_the_time_of_that_record_is_over() -> None:
    kinesis = WritableKinesis(s=1)
    producer = stepped(kinesis, order="key", linger_seconds=0.0, delivery_timeout_seconds=10.0)
    never(kinesis, "InternalFailure")
    first = producer.put(b"first", "key")
    assert producer.step()
    producer.clock.advance(5.0)
    second = producer.put(b"second", "key")
    while producer.step():
        pass
    producer.clock.advance(5.0)
    assert producer.step()  # the last call of the first record
    assert first.done()
    kinesis.before_call = lambda *_: None
    while producer.step():
        pass
    assert kinesis.taken("s") == [b"second"]
    assert second.exception(0) is None


def test_who_was_answered_before_is_tried_again_when_access_is_denied() -> None:
    kinesis = WritableKinesis(s=1)
    producer = stepped(kinesis)
    put(producer, 1)
    producer.flush()
    never(kinesis, "AccessDeniedException")
    (ticket,) = put(producer, 1)
    producer.step()
    assert not ticket.done()
    kinesis.before_call = lambda *_: None
    producer.clock.advance(STRAY_SECONDS)
    producer.step()
    assert ticket.result(0)


def test_a_large_record_that_the_stream_never_takes_fails_alone() -> None:
    kinesis = WritableKinesis(s=1)

    def fail(_stream: str, records: list[dict[str, Any]]) -> None:
        if any(len(record["Data"]) > COMMON_RECORD_BYTES for record in records):
            raise client_error("ValidationException", "PutRecords")

    kinesis.before_call = fail
    sink = InMemoryDeadLetterSink()
    producer = stepped(kinesis, dead_letters=sink, spool=SpoolInMemory({}))
    large = producer.put(bytes(2 * COMMON_RECORD_BYTES), "k", explicit_hash_key=5)
    others = put(producer, 3)
    producer.flush()
    assert type(large.exception(0)) is KinesisError
    assert all(ticket.exception(0) is None for ticket in others)
    (letter,) = sink.letters
    assert (letter.reason, letter.stream, letter.partition_key, letter.explicit_hash_key) == (
        "rejected",
        "s",
        "k",
        "5",
    )
    assert (producer.counts().failed, producer.counts().dead_lettered) == (1, 1)


def test_what_could_not_be_put_in_time_is_a_dead_letter_and_leaves_the_spool() -> None:
    kinesis, sink, content = WritableKinesis(s=1), InMemoryDeadLetterSink(), dict[int, Entry]()
    kinesis.refuses = lambda *_: THROTTLED
    sink.fail_writes(2)
    producer = stepped(kinesis, dead_letters=sink, spool=SpoolInMemory(content), delivery_timeout_seconds=5.0)
    tickets = put(producer, 3)
    producer.flush()
    assert [(letter.data, letter.reason) for letter in sink.letters] == [
        (str(number).encode(), "exhausted") for number in range(3)
    ]
    assert all(isinstance(ticket.exception(0), Throttled) for ticket in tickets)
    assert content == {}


def test_dead_letters_are_warned_of_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    kinesis = WritableKinesis(s=1)
    kinesis.refuses = lambda *_: THROTTLED
    producer = stepped(kinesis, dead_letters=InMemoryDeadLetterSink(), delivery_timeout_seconds=1.0)
    for _ in range(5):
        put(producer, 2)
        producer.clock.advance(0.1)
    producer.flush()
    producer.close()
    said = [each for each in caplog.messages if each.startswith("dead-lettered")]
    assert said[0].endswith(" since the start of the producer of s")
    assert sum(int(each.split()[1]) for each in said) == 10
    assert len(said) <= 2


def test_without_dead_letters_what_failed_for_its_time_stays_in_the_spool_for_the_next_producer() -> None:
    kinesis, content = WritableKinesis(s=1), dict[int, Entry]()
    kinesis.refuses = lambda *_: THROTTLED
    producer = stepped(kinesis, spool=SpoolInMemory(content), delivery_timeout_seconds=5.0)
    put(producer, 3)
    producer.close()
    assert producer.counts().failed == len(content) == 3
    kinesis.refuses = lambda *_: None
    second = stepped(kinesis, spool=SpoolInMemory(content))
    new = second.put(b"new", "key")
    while content:
        assert second.step() or second.due_at < float("inf")
        second.clock.advance(0.1)
    assert kinesis.taken("s") == [b"0", b"1", b"2", b"new"]
    assert new.done()
    assert (second.counts().recovered, second.counts().sent) == (3, 4)


def test_a_record_that_the_spool_cannot_take_is_refused() -> None:
    class Full(SpoolInMemory):
        def append(self, *_entries: Entry) -> int:
            raise SpoolError("the disk is full")

    producer = stepped(WritableKinesis(s=1), spool=Full({}), max_buffered_records=1)
    for _ in range(2):
        with pytest.raises(SpoolError):
            producer.put(b"", "k")
    assert (producer.counts().refused, producer.counts().waiting, producer.counts().put) == (2, 0, 2)


def test_what_a_killed_producer_left_in_its_spool_is_put_by_the_next(tmp_path: Path) -> None:
    kinesis = WritableKinesis(s=1)
    first = DiskSpool(tmp_path, stream="s")
    producer = stepped(kinesis, spool=first)
    put(producer, 5)
    first.close()  # as its process ends
    with KinesisProducer("s", client=kinesis.client, spool=DiskSpool(tmp_path, stream="s")) as second:
        assert second.put(b"new", "key").result(30)
    assert kinesis.taken("s") == [b"0", b"1", b"2", b"3", b"4", b"new"]
    assert (second.counts().recovered, second.counts().sent) == (5, 6)


def test_damage_in_a_spool_is_told_and_what_lies_behind_it_is_put(caplog: pytest.LogCaptureFixture) -> None:
    class Damaged(SpoolInMemory):
        is_told = False

        def recovered(self, limit: int) -> Any:
            if not self.is_told:
                self.is_told = True
                raise SpoolDamaged("record 7 is lost")
            return super().recovered(limit)

    kinesis = WritableKinesis(s=1)
    producer = stepped(kinesis, spool=Damaged({1: Entry("k", b"old")}))
    producer.put(b"new", "k")
    with pytest.raises(SpoolDamaged, match="record 7 is lost"):
        producer.flush()
    assert kinesis.taken("s") == [b"old", b"new"]
    assert "record 7 is lost" in caplog.text
    producer.flush()  # it was told


class Unreadable(SpoolInMemory):
    """A spool that cannot be read for some times."""

    times = 2

    def recovered(self, limit: int) -> Any:
        if self.times:
            self.times -= 1
            raise SpoolError("the disk is full")
        return super().recovered(limit)


def test_a_flush_reads_a_spool_again_that_could_not_be_read_before() -> None:
    kinesis = WritableKinesis(s=1)
    producer = stepped(kinesis, spool=Unreadable({1: Entry("k", b"old")}))
    producer.put(b"new", "k")
    for _ in range(2):
        with pytest.raises(SpoolError, match="the disk is full"):
            producer.flush()
    assert kinesis.taken("s") == [b"new"]
    producer.flush()
    assert kinesis.taken("s") == [b"new", b"old"]


def test_a_spool_that_could_not_be_read_is_read_again_later(caplog: pytest.LogCaptureFixture) -> None:
    kinesis = WritableKinesis(s=1)
    producer = stepped(kinesis, spool=Unreadable({1: Entry("k", b"old")}))
    while producer.counts().sent < 1:
        if not producer.step():
            assert producer.due_at < inf, "nothing will be done any more"
            producer.clock.advance(max(0.0, producer.due_at - producer.clock.monotonic()))
    assert kinesis.taken("s") == [b"old"]
    assert producer.clock.monotonic() < 30
    assert caplog.text.count("the disk is full") == 1
    producer.flush()


def test_a_producer_that_cannot_be_made_leaves_its_spool_to_others(tmp_path: Path) -> None:
    class FullDisk(InMemoryDeadLetterSink):
        def check_writable(self) -> None:
            raise DeadLetterError("the disk is full")

    spool = DiskSpool(tmp_path / "spool", stream="s")
    with pytest.raises(DeadLetterError, match="the disk is full"):
        stepped(WritableKinesis(s=1), spool=spool, dead_letters=FullDisk())
    assert [file.name for file in (tmp_path / "spool").iterdir()] == ["stream.json"]


# When the buffer is full


def test_a_full_buffer_refuses_and_says_how_full_it_is() -> None:
    producer = stepped(WritableKinesis(s=1), when_full="refuse", max_buffered_records=3)
    put(producer, 3)
    with pytest.raises(
        BufferFull, match="expected room for 1 record, got 3 records of 18 bytes that wait for s"
    ):
        producer.put(b"", "k")
    assert producer.counts().refused == 1


def test_a_full_buffer_drops_the_oldest_wherever_it_waits() -> None:
    kinesis = WritableKinesis(s=1)
    kinesis.refuses = lambda *_: THROTTLED
    producer = stepped(kinesis, when_full="drop_oldest", max_buffered_records=3, linger_seconds=0.0)
    tickets = put(producer, 3)
    while producer.step():  # until its shard has refused it
        pass
    tickets += put(producer, 2)
    kinesis.refuses = lambda *_: None
    producer.flush()
    assert [isinstance(ticket.exception(0), RecordDropped) for ticket in tickets] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert producer.counts().dropped == 2
    assert kinesis.taken("s") == [b"2", b"0", b"1"]


@pytest.mark.parametrize("is_listed_anew", [False, True])
@pytest.mark.parametrize("aggregation", [False, True])
@pytest.mark.parametrize("order", ["unordered", "key"])
def test_what_was_dropped_goes_into_no_call_wherever_it_waited(
    order: str, *, aggregation: bool, is_listed_anew: bool
) -> None:
    kinesis = WritableKinesis(s=1)
    producer = stepped(
        kinesis, when_full="drop_oldest", max_buffered_records=3, order=order, aggregation=aggregation
    )
    producer.put(b"first", "key")
    call = None
    while call is None:
        producer.step()
        producer.clock.advance(1.0)
        call = producer.next_work()
    tickets = [producer.put(str(number).encode(), "key") for number in range(6)]
    if is_listed_anew:
        kinesis.reshard("s", 2)
        kinesis.refuses = lambda *_: None if aggregation else THROTTLED
    producer.do(call)
    kinesis.refuses = lambda *_: None
    producer.flush()
    dropped = [isinstance(ticket.exception(0), RecordDropped) for ticket in tickets]
    assert dropped == [True] * 4 + [False] * 2
    on_stream = [part.data for data in kinesis.taken("s") for part in take_apart(data) or ()]
    assert (on_stream or kinesis.taken("s"))[-2:] == [b"4", b"5"]
    assert not {b"0", b"1", b"2", b"3"} & {*on_stream, *kinesis.taken("s")}


def test_who_waits_for_room_in_vain_is_refused_after_the_time_out() -> None:
    kinesis = WritableKinesis(s=1)
    kinesis.refuses = lambda *_: THROTTLED
    producer = stepped(kinesis, max_buffered_records=1, block_timeout_seconds=2.0)
    put(producer, 1)
    with pytest.raises(BufferFull):
        producer.put(b"", "k")
    assert producer.clock.monotonic() == pytest.approx(2.0)


# The end


def test_what_is_left_when_it_is_closed_fails_with_a_clear_error() -> None:
    kinesis = WritableKinesis(s=1)
    kinesis.refuses = lambda *_: THROTTLED
    producer = stepped(kinesis)
    tickets = put(producer, 3)
    producer.close(2.0)
    for ticket in tickets:
        with pytest.raises(
            ProducerClosed, match="the producer of s was closed after 2 s; the record was not sent"
        ):
            ticket.result(0)
    with pytest.raises(ProducerClosed, match="is closed: it takes no more records"):
        producer.put(b"", "k")
    producer.close()
    assert (producer.counts().failed, producer.counts().refused) == (3, 1)


def test_a_record_in_a_call_when_it_is_closed_may_be_on_the_stream() -> None:
    producer = stepped(WritableKinesis(s=1), linger_seconds=0.0)
    (ticket,) = put(producer, 1)
    work = producer.next_work()
    assert work is not None
    producer.close(0.0)
    with pytest.raises(ProducerClosed, match="it may be on the stream"):
        ticket.result(0)
    producer.do(work)
    assert (producer.counts().failed, producer.counts().sent) == (1, 0)


# Threads and asyncio


def test_many_threads_put_and_everything_is_on_the_stream() -> None:
    kinesis = WritableKinesis(s=4)
    kinesis.refuses = lambda *_: THROTTLED if len(kinesis.calls) % 3 == 0 else None
    tickets: list[Ticket] = []
    with KinesisProducer(
        "s", client=kinesis.client, linger_seconds=0.01, max_buffered_records=300
    ) as producer:
        threads = [threading.Thread(target=lambda: tickets.extend(put(producer, 500))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert tickets[0].result(30).shard_id
    assert all(ticket.done() for ticket in tickets)
    assert producer.counts().sent == len(tickets) == len(kinesis.taken("s")) == 2_000


def test_in_asyncio_puts_wait_for_room_without_blocking_the_loop() -> None:
    kinesis = WritableKinesis(s=2)
    free = threading.Event()

    def wait(*_: Any) -> None:
        assert free.wait(30)

    kinesis.before_call = wait

    async def run() -> None:
        async with KinesisProducer(
            "s", client=kinesis.client, linger_seconds=0.0, max_buffered_records=5
        ) as producer:
            puts = asyncio.gather(*(producer.put_async(b"1", f"k-{number}") for number in range(50)))
            await asyncio.sleep(0)
            assert not puts.done()
            free.set()
            for ticket in await puts:
                assert (await ticket).shard_id.startswith("s-0-")
            await producer.flush_async()
            assert producer.counts().sent == 50

    asyncio.run(run())


def test_a_failed_record_raises_where_it_is_awaited() -> None:
    kinesis = WritableKinesis(s=1)
    never(kinesis, "AccessDeniedException")

    async def run() -> None:
        async with KinesisProducer("s", client=kinesis.client, linger_seconds=0.0) as producer:
            ticket = await producer.put_async(b"1", "k")
            with pytest.raises(AccessDenied):
                await ticket

    asyncio.run(run())


def test_no_thread_looks_for_work_again_while_the_shards_are_listed() -> None:
    producer = stepped(WritableKinesis(s=1), aggregation=True)
    listing = producer.next_work()
    ticket = producer.put(b"1", "key")
    assert producer._engine.next_work() == (None, inf, False)
    assert listing is not None
    producer.do(listing)
    producer.flush()
    assert ticket.result(0)


def test_a_call_that_fails_and_a_lost_answer_cost_time_only() -> None:
    kinesis = WritableKinesis(s=1)
    errors: list[Exception] = [LOST, LOST]

    def lose() -> None:
        if errors:
            raise errors.pop()

    kinesis.after_call = lose
    producer = stepped(kinesis)
    tickets = put(producer, 3)
    producer.flush()
    assert all(ticket.exception(0) is None for ticket in tickets)
    assert kinesis.taken("s") == [b"0", b"1", b"2"] * 3
    assert producer.counts().retried == 6


def test_calls_that_fail_until_the_time_is_over_fail_their_records() -> None:
    kinesis = WritableKinesis(s=1)

    def fail(*_: Any) -> None:
        raise LOST

    kinesis.before_call = fail
    producer = stepped(kinesis, delivery_timeout_seconds=10.0)
    tickets = put(producer, 3)
    producer.flush()
    assert all(isinstance(ticket.exception(0), Unavailable) for ticket in tickets)
    assert 10.0 <= producer.clock.monotonic() < 20.0


def test_a_program_that_forgets_to_close_sends_what_waits_and_is_warned(tmp_path: Path) -> None:
    script = tmp_path / "forgetful.py"
    script.write_text(
        "from kinesis_spout import KinesisProducer\n"
        "from tests.support.kinesis.writable import THROTTLED, WritableKinesis\n"
        "kinesis = WritableKinesis(s=1)\n"
        "producer = KinesisProducer('s', client=kinesis.client, linger_seconds=60)\n"
        "producer.put(b'1', 'k')\n"
    )
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=True, cwd=Path.cwd(), timeout=120
    )
    assert "A producer of s was never closed: of 1 records that waited" in done.stderr
    assert "0 were not sent" in done.stderr


def test_what_waits_at_the_end_is_sent_by_threads_that_are_there(tmp_path: Path) -> None:
    """Since Python 3.12 a program that ends can start none."""
    script = tmp_path / "forgetful.py"
    script.write_text(
        "import atexit, sys, threading\n"
        "from kinesis_spout import KinesisProducer\n"
        "def refuse(thread):\n"
        "    raise RuntimeError('no new thread')\n"
        "producer = KinesisProducer('s', region='us-east-1', endpoint_url=sys.argv[1], linger_seconds=60,\n"
        "    delivery_timeout_seconds=5, aws_access_key_id='a', aws_secret_access_key='b')\n"
        "producer.put(b'1', 'k')\n"
        "atexit.register(setattr, threading.Thread, 'start', refuse)\n"
    )
    with running() as server:
        server.answers = [answer_of(b'{"Records":[{"SequenceNumber":"1","ShardId":"shardId-0"}]}')]
        done = subprocess.run(
            [sys.executable, script, server.url],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path.cwd(),
            timeout=120,
        )
    assert "0 were not sent" in done.stderr


def test_a_forked_child_has_no_producer() -> None:
    producer = KinesisProducer("s", client=WritableKinesis(s=1).client)
    engine, bell = producer._engine, producer._engine._bell
    producer._forget()
    with pytest.raises(ProducerClosed):
        producer.put(b"", "k")
    engine.stop("the test is over")
    engine._bell = bell  # of the threads, which a real child does not have
    engine.join(10.0)
