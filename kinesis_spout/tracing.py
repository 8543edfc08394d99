"""OpenTelemetry's spans of records, by its API alone; needs ``kinesis-spout[otel]``. The exporter is yours.

Imported only where the setting `tracing` is on. A span costs 30 µs, so it is made only for what belongs to a
sampled trace: a put whose current span is sampled, a record whose producer's was. Names and attributes are
those of OpenTelemetry's conventions for messaging. Work that a record causes is linked to the span that put it,
and is not its child: it may begin days later, and again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, Final, TypeVar

from kinesis_spout.model.extras import missing_extra
from kinesis_spout.model.handler import Failure, NotNow
from kinesis_spout.model.logs import package_version
from kinesis_spout.model.record import TRACEPARENT, TRACESTATE, Record, TraceContext, TracedRecord
from kinesis_spout.model.unfinished_work import is_coroutine_function
from kinesis_spout.settings.grammar.stream_names import name_of

try:
    from opentelemetry.trace import (
        Link,
        Span,
        SpanContext,
        SpanKind,
        Status,
        StatusCode,
        TraceFlags,
        Tracer,
        TraceState,
        get_current_span,
        get_tracer,
        use_span,
    )
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as missing:
    raise missing_extra("tracing", "otel", ["opentelemetry-api"]) from missing

MAX_LINKS: Final = 32
"""The most links of a span for several records; the SDK keeps 128."""

_W3C: Final = TraceContextTextMapPropagator()
_Function = Callable[[Any], Any]
_Made = TypeVar("_Made")


class PutTracing:
    """The spans of a producer. Thread-safe."""

    def __init__(self, stream: str) -> None:
        self._destination = name_of(stream)
        self._last: tuple[SpanContext, TraceContext] | None = None
        """The context of the last put: often the same span puts many records."""

    def current(self) -> TraceContext | None:
        """Return the trace context that is current here; None if none is, or it is not sampled."""
        context = get_current_span().get_span_context()
        if not (context.trace_flags.sampled and context.is_valid):
            return None
        last = self._last
        if last is not None and last[0] is context:
            return last[1]
        carrier: dict[str, str] = {}
        _W3C.inject(carrier)
        trace = TraceContext(carrier[TRACEPARENT], carrier.get(TRACESTATE, ""))
        self._last = context, trace
        return trace

    def traced(self, make: Callable[..., _Made]) -> Callable[..., _Made]:
        """Return a function that makes what is put, and gives it the trace context that is current then."""

        def traced(*arguments: Any, **options: Any) -> _Made:
            return make(*arguments, trace=self.current(), **options)

        return traced

    @contextmanager
    def sending(self, records: int, traces: Iterable[TraceContext | None]) -> Iterator[None]:
        """Make a span of a call of PutRecords, linked to those that put its records; none if none is sampled."""
        links = _links(traces)
        if not links:
            yield
            return
        span = _tracer().start_span(
            f"send {self._destination}",
            kind=SpanKind.PRODUCER,
            links=links,
            attributes={
                "messaging.system": "aws.kinesis",
                "messaging.operation.name": "PutRecords",
                "messaging.operation.type": "send",
                "messaging.destination.name": self._destination,
                "messaging.batch.message_count": records,
            },
        )
        with _current(span):
            yield


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTracing:
    """The spans of what an application does with records. Can be pickled."""

    application: str

    def begin(self, record: TracedRecord) -> Span:
        """Begin the span of a delivery; it is not made current."""
        return self._begin(record, _links((_trace(record),)), _of_one(record))

    def end(self, span: Span | None, failure: Failure | None) -> None:
        """End the span of a delivery, with the failure that ended it; None: it was acked."""
        if span is None:
            return
        if failure is not None and not failure.put_off:
            kind = "timeout" if failure.timed_out else "_OTHER"  # the conventions' word for any other
            if failure.raised is not None:
                kind = failure.raised.exception
            span.set_attribute("error.type", kind)
            span.set_status(Status(StatusCode.ERROR, failure.error_text))
        span.end()

    @contextmanager
    def processing(self, record: TracedRecord) -> Iterator[None]:
        """Make the span of a delivery, current inside, with what is raised as its error."""
        with _current(self.begin(record)):
            yield

    @contextmanager
    def processing_batch(self, records: Sequence[Record]) -> Iterator[Span | None]:
        """Make a span of records that are handled together; none if none of them belongs to a sampled trace."""
        links = _links(_trace(record) for record in records if type(record) is TracedRecord)
        if not links:
            yield None
            return
        span = self._begin(records[0], links, {"messaging.batch.message_count": len(records)})
        with _current(span):
            yield span

    def _begin(self, record: Record, links: Sequence[Link], more: dict[str, str | int]) -> Span:
        destination = name_of(record.stream)
        return _tracer().start_span(
            f"process {destination}",
            kind=SpanKind.CONSUMER,
            links=links,
            attributes={
                "messaging.system": "aws.kinesis",
                "messaging.operation.name": "process",
                "messaging.operation.type": "process",
                "messaging.destination.name": destination,
                "messaging.destination.partition.id": record.shard_id,
                "messaging.consumer.group.name": self.application,
                **more,
            },
        )


def traced(
    function: _Function, scheme: Callable[[Record], Any], application: str
) -> "_TracedCalls | _TracedCoroutines":
    """Return a handler of records that calls ``function(scheme(record))`` inside a span where there is one."""
    kind = _TracedCoroutines if is_coroutine_function(function) else _TracedCalls
    return kind(function, scheme, ProcessTracing(application=application))


@dataclass(frozen=True, slots=True)
class _TracedCalls:
    function: _Function
    scheme: Callable[[Record], Any]
    tracing: ProcessTracing

    def __call__(self, record: Record) -> object:
        if type(record) is not TracedRecord:
            return self.function(self.scheme(record))
        with self.tracing.processing(record):
            return self.function(self.scheme(record))


@dataclass(frozen=True, slots=True)
class _TracedCoroutines:
    function: _Function
    scheme: Callable[[Record], Any]
    tracing: ProcessTracing

    async def __call__(self, record: Record) -> object:
        if type(record) is not TracedRecord:
            return await self.function(self.scheme(record))
        with self.tracing.processing(record):
            return await self.function(self.scheme(record))


@contextmanager
def _current(span: Span) -> Iterator[None]:
    try:
        with use_span(span, record_exception=False, set_status_on_exception=False):
            yield
    except BaseException as error:
        if not isinstance(error, NotNow):  # which is no attempt
            span.set_attribute("error.type", type(error).__qualname__)
            span.record_exception(error)
            span.set_status(Status(StatusCode.ERROR, str(error)))
        raise
    finally:
        span.end()


@cache
def _tracer() -> Tracer:
    """Return the tracer of this process. One made before the user's provider is set passes on to it later."""
    return get_tracer("kinesis_spout", package_version())


def _links(traces: Iterable[TraceContext | None]) -> list[Link]:
    different = dict.fromkeys(trace for trace in traces if trace is not None)
    return [Link(_span_context(trace)) for trace in islice(different, MAX_LINKS)]


def _span_context(trace: TraceContext) -> SpanContext:
    """Read a context that is known to be valid; the propagator would take 5 µs to find that out."""
    _, trace_id, span_id, flags = trace.traceparent.split("-")
    return SpanContext(
        trace_id=int(trace_id, 16),
        span_id=int(span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(flags, 16)),
        trace_state=TraceState.from_header([trace.tracestate]),
    )


def _trace(record: TracedRecord) -> TraceContext:
    return TraceContext(record.traceparent, record.tracestate)


def _of_one(record: TracedRecord) -> dict[str, str | int]:
    return {"messaging.message.id": record.message_id, "kinesis_spout.attempt": record.attempt}
