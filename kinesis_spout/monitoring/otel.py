"""The metrics for OpenTelemetry, by its API alone; needs ``kinesis-spout[otel]``. The exporter is yours.

    from kinesis_spout.monitoring import export_to_opentelemetry

    query = spout.foreach_record(spark, handle)
    export_to_opentelemetry(query)

Each row of the table is an instrument under its own name. There are also the four of OpenTelemetry's
conventions for messaging and, if asked for, those of KCL 3.5 under KCL's names. Counters and gauges are
observable: they cost nothing between two exports. The API has no observable histogram, so of what a
histogram has counted since the last export some values are recorded, at most twenty of each range.
"""

import threading
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import pairwise
from time import monotonic
from typing import Final, NamedTuple

from kinesis_spout.model.distribution import Counted
from kinesis_spout.model.extras import missing_extra
from kinesis_spout.model.logs import package_version
from kinesis_spout.monitoring.metrics import METRICS, PREFIX, Kind
from kinesis_spout.monitoring.readings import Sample, Sources, Watched

try:
    from opentelemetry.metrics import CallbackOptions, Histogram, Meter, MeterProvider, Observation, get_meter
except ImportError as missing:
    raise missing_extra("metrics of OpenTelemetry", "otel", ["opentelemetry-api"]) from missing

_KEPT_SECONDS: Final = 1.0
_MOST_OF_A_RANGE: Final = 20

Labels = Mapping[str, str]


class Alias(NamedTuple):
    """A metric of the table under a name and with attributes that others have agreed on."""

    name: str
    row: str
    """Its name in the table, without the prefix."""
    attributes: Mapping[str, str]
    """Each with a text, in which ``{label}`` stands for a label of the row."""
    factor: float = 1


_SYSTEM: Final = {"messaging.system": "aws.kinesis", "messaging.destination.name": "{stream}"}
_CONSUMER: Final = {**_SYSTEM, "messaging.consumer.group.name": "{app}"}

CONVENTIONS: Final = (
    Alias(
        "messaging.client.consumed.messages",
        "records_delivered",
        {**_CONSUMER, "messaging.operation.name": "deliver"},
    ),
    Alias(
        "messaging.client.sent.messages",
        "producer_records_sent",
        {**_SYSTEM, "messaging.operation.name": "PutRecords"},
    ),
    Alias(
        "messaging.process.duration", "handler_seconds", {**_CONSUMER, "messaging.operation.name": "process"}
    ),
    Alias(
        "messaging.client.operation.duration",
        "producer_call_seconds",
        {**_SYSTEM, "messaging.operation.name": "PutRecords", "messaging.operation.type": "send"},
    ),
    Alias(
        "messaging.client.operation.duration",
        "commit_seconds",
        {**_CONSUMER, "messaging.operation.name": "commit", "messaging.operation.type": "settle"},
    ),
)
"""OpenTelemetry's semantic conventions for messaging, 1.44."""

_KCL_ATTRIBUTES: Final = {
    "aws.kinesis.stream_name": "{stream}",
    "aws.kinesis.consumer.name": "{app}",
    "aws.kinesis.operation": "ProcessTask",
}
KCL: Final = (
    Alias("aws.kinesis.client.consumer.lag.duration", "lag_max_seconds", _KCL_ATTRIBUTES, 1_000),
    Alias("aws.kinesis.client.records_processed", "records_delivered", _KCL_ATTRIBUTES),
    Alias("aws.kinesis.client.records.size", "read_bytes", _KCL_ATTRIBUTES),
    Alias(
        "aws.kinesis.client.record_processor.process_records.duration",
        "handler_seconds",
        _KCL_ATTRIBUTES,
        1_000,
    ),
)
"""Metrics that KCL 3.5 exports and we have, too; durations are milliseconds there."""


def export_to_opentelemetry(
    *watched: Watched, meter_provider: MeterProvider | None = None, kcl_names: bool = False
) -> None:
    """Make the instruments, which the meter provider reads when it exports.

    Args:
        watched: spouts, queries, topologies' queries, producers, or streaming queries of Spark.
        meter_provider: the global one unless given.
        kcl_names: also the figures that KCL 3.5 exports, under its names and attributes, for dashboards that
            exist.

    Raises:
        InvalidConfig: one of them cannot be watched.
    """
    meter = get_meter("kinesis_spout", package_version(), meter_provider=meter_provider)
    own = tuple(
        Alias(metric.name, name.removeprefix(PREFIX), {label: f"{{{label}}}" for label in metric.labels})
        for name, metric in METRICS.items()
    )
    _Export(Sources(watched), meter, (*own, *CONVENTIONS, *(KCL if kcl_names else ())))


class _Export:
    def __init__(self, sources: Sources, meter: Meter, aliases: tuple[Alias, ...]) -> None:
        self._sources = sources
        self._lock = threading.Lock()
        self._read_at = -_KEPT_SECONDS
        self._samples: dict[str, list[Sample]] = {}
        fed = [alias for alias in aliases if METRICS[PREFIX + alias.row].kind is Kind.HISTOGRAM]
        histograms = {alias.name: _histogram(meter, alias) for alias in fed}
        self._feeds = [_Feed(histograms[alias.name], alias) for alias in fed]
        for alias in aliases:
            metric = METRICS[PREFIX + alias.row]
            make = {
                Kind.COUNTER: meter.create_observable_counter,
                Kind.GAUGE: meter.create_observable_gauge,
            }.get(metric.kind)
            if make is not None:
                make(alias.name, [partial(self._observe, alias)], metric.unit, metric.doc)

    def _observe(self, alias: Alias, _options: CallbackOptions) -> Iterator[Observation]:
        for _, labels, value in self._of_row(alias.row):
            assert not isinstance(value, Counted), "histograms are fed"
            yield Observation(float(value) * alias.factor, _filled(alias.attributes, labels))

    def _of_row(self, row: str) -> list[Sample]:
        """The samples of a row; one reading serves all instruments of an export."""
        with self._lock:
            if monotonic() - self._read_at >= _KEPT_SECONDS:
                self._samples = {}
                for sample in self._sources.read():
                    self._samples.setdefault(sample.metric.name, []).append(sample)
                self._read_at = monotonic()
                for feed in self._feeds:
                    feed.record(self._samples.get(PREFIX + feed.row, []))
            return self._samples.get(PREFIX + row, [])


class _Feed:
    """Records what a histogram has counted since it was called last. Mutable."""

    def __init__(self, histogram: Histogram, alias: Alias) -> None:
        self.row = alias.row
        self._alias = alias
        self._histogram = histogram
        self._before: dict[tuple[str, ...], tuple[int, ...]] = {}

    def record(self, samples: list[Sample]) -> None:
        for _, labels, counted in samples:
            assert isinstance(counted, Counted), "gauges and counters are observed"
            series, attributes = tuple(labels.values()), _filled(self._alias.attributes, labels)
            before = self._before.get(series, (0,) * len(counted.counts))
            self._before[series] = tuple(counted.counts)
            # A value in the middle of its range; one beyond the last bound, there.
            edges = (0.0, *counted.bounds, counted.bounds[-1])
            for (low, high), now, then in zip(pairwise(edges), counted.counts, before, strict=True):
                for _ in range(min(_MOST_OF_A_RANGE, now - then)):
                    self._histogram.record((low + high) / 2 * self._alias.factor, attributes)


def _histogram(meter: Meter, alias: Alias) -> Histogram:
    metric = METRICS[PREFIX + alias.row]
    unit = "ms" if alias.factor == 1_000 else metric.unit  # noqa: PLR2004 - of KCL
    return meter.create_histogram(alias.name, unit, metric.doc)


def _filled(attributes: Mapping[str, str], labels: Labels) -> dict[str, str]:
    return {name: text.format_map(labels) for name, text in attributes.items()}
