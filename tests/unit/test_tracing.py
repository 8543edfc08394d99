"""Traces from a producer's put to what its consumers do, by the tags of aggregated records."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry import context, trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags

from kinesis_spout import KinesisSpout, NotNow, Reject
from kinesis_spout.kinesis.aggregated_record import UserRecord, aggregate, contents, take_apart
from kinesis_spout.kinesis.read.user_records import taken_apart
from kinesis_spout.model.record import Record, TraceContext, TracedRecord
from kinesis_spout.model.scheme import resolve
from kinesis_spout.spark.concurrency.concurrent_calls import ConcurrentCalls
from kinesis_spout.spark.concurrency.record_schedule import RecordSchedule, RunRules
from kinesis_spout.spark.pickled_handler import PickledHandler
from kinesis_spout.spark.tasks.handlers import (
    ArrowCollector,
    RecordHandler,
    TracedArrowHandler,
    record_handler,
)
from kinesis_spout.spark.tasks.journal import SliceNotes
from kinesis_spout.testing import SteppedProducer
from kinesis_spout.tracing import MAX_LINKS
from tests.support.consumer.world import SteppedWorld
from tests.support.kinesis.writable import WritableKinesis
from tests.support.traces import spans

__all__ = ["spans"]  # a fixture

Spans = InMemorySpanExporter
NEVER = 1e9
NOTES = SliceNotes(None, 0)
PARENTS = [f"00-{number:032x}-{number:016x}-01" for number in range(1, 100)]
TRACER = trace.get_tracer("test")


def named(spans: Spans, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


def linked(span: ReadableSpan) -> list[str]:
    return [
        f"00-{link.context.trace_id:032x}-{link.context.span_id:016x}-{link.context.trace_flags:02x}"
        for link in span.links
    ]


def parent_of(span: trace.Span) -> str:
    of = span.get_span_context()
    return f"00-{of.trace_id:032x}-{of.span_id:016x}-{of.trace_flags:02x}"


def inside(*parents: str | None) -> list[UserRecord]:
    return [
        UserRecord("key", str(at).encode(), trace=None if parent is None else TraceContext(parent))
        for at, parent in enumerate(parents)
    ]


def read(*parents: str | None) -> list[Record]:
    """Records as a consumer with tracing reads them."""
    carrier = Record(data=aggregate(inside(*parents)), sequence_number="7", stream="orders", shard_id="shard")
    return list(taken_apart([carrier], with_traces=True).records)


# The producer


@pytest.mark.usefixtures("spans")
def test_what_is_put_in_a_span_carries_its_context_beside_the_data() -> None:
    kinesis = WritableKinesis(s=1)
    producer = SteppedProducer("s", client=kinesis.client, aggregation=True, tracing=True)
    producer.put(b"before", "k")
    with TRACER.start_as_current_span("order") as order:
        producer.put(b"one", "k")
        producer.put(b"two", "k")
    producer.flush()
    (data,) = kinesis.taken("s")
    found = contents(data, with_traces=True)
    assert found is not None
    own = TraceContext(parent_of(order))
    assert (found.data, found.traces) == ([b"before", b"one", b"two"], [None, own, own])


def test_a_call_has_one_span_that_is_linked_to_those_of_its_puts(spans: Spans) -> None:
    kinesis = WritableKinesis(s=1)
    with SteppedProducer("s", client=kinesis.client, tracing=True) as producer:
        with TRACER.start_as_current_span("first") as first:
            producer.put(b"one", "k")
            producer.put(b"two", "k")
        with TRACER.start_as_current_span("second") as second:
            producer.put(b"three", "k")
    (sent,) = named(spans, "send s")
    assert (sent.kind, sent.parent) == (SpanKind.PRODUCER, None)
    assert linked(sent) == [parent_of(first), parent_of(second)]
    assert sent.attributes == {
        "messaging.system": "aws.kinesis",
        "messaging.operation.name": "PutRecords",
        "messaging.operation.type": "send",
        "messaging.destination.name": "s",
        "messaging.batch.message_count": 3,
    }
    assert kinesis.taken("s") == [b"one", b"two", b"three"], "without aggregation nothing is added"


def test_a_call_that_fails_says_so_in_its_span(spans: Spans) -> None:
    kinesis = WritableKinesis(s=1)

    def fail(*_: Any) -> None:
        raise RuntimeError("no network")

    kinesis.before_call = fail
    producer = SteppedProducer("s", client=kinesis.client, tracing=True)
    with TRACER.start_as_current_span("order"):
        producer.put(b"one", "k")
    producer.close()
    sent = named(spans, "send s")[0]
    assert sent.attributes is not None
    assert (sent.status.status_code, sent.attributes["error.type"]) == (StatusCode.ERROR, "Unavailable")


def test_a_span_that_is_not_sampled_leaves_nothing(spans: Spans) -> None:
    kinesis = WritableKinesis(s=1)
    unsampled = NonRecordingSpan(SpanContext(1, 1, is_remote=False, trace_flags=TraceFlags(0)))
    with (
        SteppedProducer("s", client=kinesis.client, aggregation=True, tracing=True) as producer,
        trace.use_span(unsampled),
    ):
        producer.put(b"one", "k")
        producer.put(b"two", "k")
    assert kinesis.taken("s") == [aggregate([UserRecord("k", b"one"), UserRecord("k", b"two")])]
    assert spans.get_finished_spans() == ()


def test_without_the_setting_a_producer_adds_nothing(spans: Spans) -> None:
    kinesis = WritableKinesis(s=1)
    with (
        TRACER.start_as_current_span("order"),
        SteppedProducer("s", client=kinesis.client, aggregation=True) as producer,
    ):
        producer.put(b"one", "k")
        producer.put(b"two", "k")
    assert kinesis.taken("s") == [aggregate([UserRecord("k", b"one"), UserRecord("k", b"two")])]
    assert named(spans, "send s") == []


@pytest.mark.usefixtures("spans")
def test_aggregates_keep_their_limit_with_trace_context_inside() -> None:
    kinesis = WritableKinesis(s=1)
    with SteppedProducer(
        "s", client=kinesis.client, aggregation=True, aggregation_max_bytes=1_024, tracing=True
    ) as producer:
        for number in range(200):
            with TRACER.start_as_current_span("order"):
                producer.put(str(number).encode(), f"key-{number}")
    taken = kinesis.taken("s")
    assert max(map(len, taken)) <= 1_024
    assert len(taken) < 30
    found = [contents(data, with_traces=True) for data in taken]
    assert sum(len(each.traces or ()) for each in found if each is not None) == 200


@pytest.mark.parametrize(("size", "is_aggregated"), [(1, True), (1_000, False)])
@pytest.mark.usefixtures("spans")
def test_a_record_alone_is_aggregated_for_its_context_if_it_fits(size: int, *, is_aggregated: bool) -> None:
    kinesis = WritableKinesis(s=1)
    with (
        SteppedProducer(
            "s", client=kinesis.client, aggregation=True, aggregation_max_bytes=1_024, tracing=True
        ) as producer,
        TRACER.start_as_current_span("order"),
    ):
        ticket = producer.put(bytes(size), "k")
    (data,) = kinesis.taken("s")
    assert (take_apart(data) is not None) == is_aggregated
    assert ticket.result(0).sub_sequence_number == (0 if is_aggregated else None)


# Records


def test_only_records_of_sampled_traces_have_context_and_only_where_it_is_asked_for() -> None:
    records = read(None, PARENTS[0], PARENTS[1][:-1] + "0")
    assert [type(record) for record in records] == [Record, TracedRecord, Record]
    traced = records[1]
    assert isinstance(traced, TracedRecord)
    assert (traced.traceparent, traced.data, traced.message_id) == (PARENTS[0], b"1", "shard:7:1")
    carrier = Record(data=aggregate(inside(PARENTS[0])), sequence_number="7")
    assert [type(record) for record in taken_apart([carrier]).records] == [Record]


# The record doors


def handler_of(function: Callable[[Any], object], **options: Any) -> Any:
    options = {"concurrency": 1, "timeout_seconds": None} | options
    return record_handler(function, resolve("raw"), traced_for="billing", **options)


def test_a_handled_record_has_a_span_that_is_linked_to_its_put(spans: Spans) -> None:
    seen: list[tuple[bytes, int]] = []

    def handle(record: Record) -> None:
        seen.append((record.data, trace.get_current_span().get_span_context().span_id))

    handler = handler_of(handle)
    assert isinstance(handler, RecordHandler)
    records = read(None, PARENTS[0])
    records[1].attempt = 2
    assert handler(records, NEVER, NOTES) == (2, [])
    (span,) = named(spans, "process orders")
    assert (span.kind, span.parent, linked(span)) == (SpanKind.CONSUMER, None, [PARENTS[0]])
    assert span.attributes == {
        "messaging.system": "aws.kinesis",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "shard",
        "messaging.consumer.group.name": "billing",
        "messaging.message.id": "shard:7:1",
        "kinesis_spout.attempt": 2,
    }
    assert span.context is not None
    assert seen == [(b"0", 0), (b"1", span.context.span_id)]
    assert context.get_current() == {}, "nothing is left current"


def test_what_a_handler_raises_is_the_error_of_its_span_and_fails_its_record_as_before(spans: Spans) -> None:
    def handle(record: Record) -> None:
        raise {b"0": ValueError("bad amount"), b"1": NotNow(7), b"2": SystemExit(3), b"3": Reject("no")}[
            record.data
        ]

    reached, failed = handler_of(handle)(read(*PARENTS[:4]), NEVER, NOTES)
    assert reached == 4
    assert failed[0][1].error_text == "ValueError: bad amount"
    raised = failed[0][1].raised
    assert raised is not None
    assert raised.kind.endswith(", in handle")
    assert "kinesis_spout/tracing.py" not in raised.traceback
    found = named(spans, "process orders")
    assert [(span.attributes or {}).get("error.type") for span in found] == [
        "ValueError",
        None,
        "SystemExit",
        "Reject",
    ]
    assert [span.status.status_code for span in found][:2] == [StatusCode.ERROR, StatusCode.UNSET]


def run_concurrently(calls: ConcurrentCalls, records: list[Record]) -> RecordSchedule:
    class Notes:
        def failed(self, at: int, failure: object) -> bool:
            del at, failure
            return False

        def held(self, at: int) -> None: ...

    run = RecordSchedule(
        len(records), RunRules(concurrency=calls.concurrency), Notes(), bytearray(len(records))
    )
    calls(run, records, lambda: False)
    return run


def test_several_records_at_a_time_have_a_span_each(spans: Spans) -> None:
    current: dict[bytes, int] = {}

    async def in_loop(record: Record) -> None:
        await asyncio.sleep(0)
        current[record.data] = trace.get_current_span().get_span_context().span_id

    def on_thread(record: Record) -> None:
        current[record.data] = trace.get_current_span().get_span_context().span_id

    for function in (in_loop, on_thread):
        current.clear()
        spans.clear()
        handler = handler_of(function, concurrency=4)
        assert isinstance(handler, ConcurrentCalls)
        run = run_concurrently(handler, read(*PARENTS[:20]))
        assert (run.begun, run.failures) == (20, {})
        found = {linked(span)[0]: span.context for span in named(spans, "process orders")}
        assert sorted(found) == sorted(PARENTS[:20])
        for at, parent in enumerate(PARENTS[:20]):
            of = found[parent]
            assert of is not None
            assert current[str(at).encode()] == of.span_id


def test_a_traced_handler_travels_to_executors(spans: Spans) -> None:
    packed = PickledHandler.of(handler_of(lambda _: None))
    packed.load()(read(PARENTS[0]), NEVER, NOTES)
    assert len(named(spans, "process orders")) == 1


def test_a_batch_has_one_span_with_links_to_its_first_contexts(spans: Spans) -> None:
    def handle(batch: pa.RecordBatch, collector: ArrowCollector) -> None:
        collector.fail([batch.num_rows - 1], "why")

    handler = TracedArrowHandler(handle, "billing")
    handler(read(None, PARENTS[0], *PARENTS), NEVER, NOTES)
    handler(read(None, None), NEVER, NOTES)
    (span,) = named(spans, "process orders")
    assert linked(span) == PARENTS[:MAX_LINKS]
    assert span.attributes is not None
    assert span.attributes["messaging.batch.message_count"] == 101
    assert span.attributes["kinesis_spout.failed"] == 1


# Plain Python


@pytest.fixture
def world() -> SteppedWorld:
    return SteppedWorld(scheme="raw", retry_jitter=0.0, tracing=True)


def statuses(spans: Spans) -> list[tuple[StatusCode, str | None]]:
    return [(span.status.status_code, span.status.description) for span in named(spans, "process orders")]


def test_a_tuples_span_goes_from_its_delivery_to_its_ack(world: SteppedWorld, spans: Spans) -> None:
    world.stream.put_aggregated(inside(PARENTS[0], None))
    spout = world.spout()
    one, other = world.takes(spout, 2)
    own = spout.trace_span(one.message_id)
    assert own is not None
    assert own.is_recording()
    assert spout.trace_span(other.message_id) is None
    assert (isinstance(one.values, TracedRecord), spans.get_finished_spans()) == (True, ())
    assert spout.ack(one.message_id)
    assert spout.ack(other.message_id)
    (span,) = named(spans, "process orders")
    assert (span.kind, linked(span), statuses(spans)) == (
        SpanKind.CONSUMER,
        [PARENTS[0]],
        [(StatusCode.UNSET, None)],
    )
    assert span.attributes is not None
    assert span.attributes["messaging.message.id"] == one.message_id.partition("#")[0]
    assert spout.trace_span(one.message_id) is None


def test_each_delivery_of_a_tuple_has_its_own_span(world: SteppedWorld, spans: Spans) -> None:
    world.stream.put_aggregated(inside(PARENTS[0]))
    spout = world.spout(message_timeout_seconds=30.0)
    (first,) = world.takes(spout, 1)
    assert spout.fail(first.message_id, ValueError("bad"))
    (second,) = world.takes(spout, 1, seconds=10.0)
    (third,) = world.takes(spout, 1, seconds=60.0)
    assert not spout.fail(second.message_id, "late")
    assert spout.ack(third.message_id)
    assert statuses(spans) == [
        (StatusCode.ERROR, "ValueError: bad"),
        (StatusCode.ERROR, "timed out after 30 s"),
        (StatusCode.UNSET, None),
    ]
    found = [span.attributes or {} for span in named(spans, "process orders")]
    assert [each["kinesis_spout.attempt"] for each in found] == [1, 2, 3]
    assert [each.get("error.type") for each in found] == ["_OTHER", "timeout", None]


@pytest.mark.parametrize("guarantee", ["at_most_once", "none"])
def test_the_spans_of_other_guarantees_end_too(world: SteppedWorld, spans: Spans, guarantee: str) -> None:
    world.stream.put_aggregated(inside(PARENTS[0], PARENTS[1]))
    spout = world.spout(guarantee=guarantee)
    one, other = world.takes(spout, 2)
    spout.ack(one.message_id)
    spout.fail(other.message_id, "no")
    assert statuses(spans) == [(StatusCode.UNSET, None), (StatusCode.ERROR, "no")]


def test_the_spans_of_what_is_in_flight_end_with_the_spout(world: SteppedWorld, spans: Spans) -> None:
    world.stream.put_aggregated(inside(PARENTS[0]))
    with world.spout() as spout:
        assert len(world.takes(spout, 1)) == 1
    assert len(named(spans, "process orders")) == 1


def test_without_the_setting_a_consumer_makes_nothing(spans: Spans) -> None:
    world = SteppedWorld(scheme="raw")
    world.stream.put_aggregated(inside(PARENTS[0]))
    spout = world.spout()
    taken = world.takes(spout, 1)
    assert type(taken[0].values) is Record
    assert spout.ack(taken[0].message_id)
    assert spans.get_finished_spans() == ()


# The extra


def test_opentelemetry_is_imported_only_where_tracing_is_on() -> None:
    program = (
        "import sys\n"
        "from kinesis_spout import KinesisProducer, KinesisSpout\n"
        "KinesisSpout(stream='orders', app='a', region='eu-west-1')\n"
        "KinesisProducer('orders', region='eu-west-1').close()\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
        "KinesisSpout(stream='orders', app='a', region='eu-west-1', tracing=True)\n"
        "assert 'opentelemetry.trace' in sys.modules and 'opentelemetry.sdk' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_without_opentelemetry_the_setting_is_an_error_that_names_the_extra() -> None:
    program = (
        "import sys\n"
        "sys.modules['opentelemetry'] = None\n"
        "from kinesis_spout import KinesisProducer, KinesisSpout\n"
        "from kinesis_spout.model.errors import MissingExtra\n"
        "for make in (lambda: KinesisSpout(stream='s', app='a', tracing=True),\n"
        "             lambda: KinesisProducer('s', region='eu-west-1', tracing=True)):\n"
        "    try:\n"
        "        make()\n"
        "    except MissingExtra as error:\n"
        "        assert 'kinesis-spout[otel]' in str(error), error\n"
        "    else:\n"
        "        raise AssertionError('no error')\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_setting_is_one_for_both_and_off_by_default() -> None:
    spout = KinesisSpout(stream="orders", app="billing", tracing=True, region="eu-west-1")
    assert spout.config.tracing
    assert not KinesisSpout(stream="orders", app="billing", region="eu-west-1").config.tracing
