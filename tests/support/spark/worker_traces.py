"""A handler that sets OpenTelemetry's SDK up in the worker that it is unpickled in, as a user's module does."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from kinesis_spout.model.record import Record


class ToFile(SpanExporter):
    """Appends spans to a file, one line each."""

    def __init__(self, path: str) -> None:
        self._path = path

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with Path(self._path).open("a") as file:
            file.write("".join(f"{json.dumps(json.loads(span.to_json()))}\n" for span in spans))
        return SpanExportResult.SUCCESS


class Charging:
    """Makes a span of its own for each record; the record "bad" fails once."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Callable[[str], "Charging"], tuple[str]]:
        return in_worker, (self._path,)

    def __call__(self, record: Record) -> None:
        with trace.get_tracer("test").start_as_current_span("charge"):
            if record.data == b"bad" and record.attempt == 1:
                raise ValueError("once")


def in_worker(path: str) -> Charging:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ToFile(path)))
    trace.set_tracer_provider(provider)
    return Charging(path)


def spans_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
