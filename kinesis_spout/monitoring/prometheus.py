"""The metrics for Prometheus; needs ``kinesis-spout[metrics]``.

from prometheus_client import start_http_server
from kinesis_spout.monitoring import PrometheusCollector

query = spout.foreach_record(spark, handle)
REGISTRY.register(PrometheusCollector(query))
"""

from collections.abc import Iterator

from kinesis_spout.model.distribution import Counted
from kinesis_spout.model.extras import missing_extra
from kinesis_spout.monitoring.metrics import METRICS, Kind, Metric
from kinesis_spout.monitoring.readings import Sample, Sources, Watched

try:
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.metrics_core import Metric as Family
    from prometheus_client.registry import Collector
except ImportError as missing:
    raise missing_extra("metrics of Prometheus", "metrics", ["prometheus-client"]) from missing


class PrometheusCollector(Collector):
    """Reads the metrics of what it is given, each time that it is asked; register it in a registry.

    Args:
        watched: spouts, queries, topologies' queries, producers, or streaming queries of Spark.
        per_shard: the metrics of each shard, too. A thousand shards cost a scrape some 0.1 s of CPU then.

    Raises:
        InvalidConfig: one of them cannot be watched.
    """

    def __init__(self, *watched: Watched, per_shard: bool = False) -> None:
        self._sources = Sources(watched)
        self._per_shard = per_shard

    def describe(self) -> list[Family]:
        """Name every metric, without values: a registry checks for names that are taken."""
        return [_family(metric) for metric in METRICS.values()]

    def collect(self) -> Iterator[Family]:
        """Read them all."""
        return families(self._sources.read(per_shard=self._per_shard))


def families(samples: list[Sample]) -> Iterator[Family]:
    """The samples as the client library has them, metric by metric."""
    found: dict[str, Family] = {}
    for metric, labels, value in samples:
        family = found.get(metric.name)
        if family is None:
            family = found[metric.name] = _family(metric)
        values = [labels[label] for label in metric.labels]
        if isinstance(value, Counted):
            family.add_metric(values, buckets=_buckets(value), sum_value=value.total)  # type: ignore[attr-defined]
        else:
            family.add_metric(values, float(value))  # type: ignore[attr-defined]
    yield from found.values()


def exposition(samples: list[Sample]) -> bytes:
    """The samples as text, as ``/metrics`` gives it, with the figures of the process under the library's names."""

    class Once(Collector):
        def collect(self) -> Iterator[Family]:
            return families(samples)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Once())
    ProcessCollector(registry=registry)
    return generate_latest(registry)


def _family(metric: Metric) -> Family:
    kinds = {
        Kind.COUNTER: CounterMetricFamily,
        Kind.GAUGE: GaugeMetricFamily,
        Kind.HISTOGRAM: HistogramMetricFamily,
    }
    family: Family = kinds[metric.kind](metric.name, metric.doc, labels=metric.labels)
    return family


def _buckets(counted: Counted) -> list[tuple[str, float]]:
    below, buckets = 0, []
    for bound, count in zip((*counted.bounds, float("inf")), counted.counts, strict=True):
        below += count
        buckets.append(("+Inf" if bound == float("inf") else str(bound), float(below)))
    return buckets
