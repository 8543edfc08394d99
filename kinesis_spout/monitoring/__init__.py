"""For monitors and probes: metrics, health, status; of spouts, queries, topologies and producers.

The names here are loaded when they are first used: exporters need an extra each, and are slow to import.
"""

from typing import TYPE_CHECKING, Final

from kinesis_spout.model.extras import lazy_names

if TYPE_CHECKING:
    from kinesis_spout.monitoring.examples import alert_rules, dashboard
    from kinesis_spout.monitoring.metrics import METRICS, Kind, Metric
    from kinesis_spout.monitoring.otel import export_to_opentelemetry
    from kinesis_spout.monitoring.prometheus import PrometheusCollector
    from kinesis_spout.monitoring.server import MonitoringServer

__all__ = [
    "METRICS",
    "Kind",
    "Metric",
    "MonitoringServer",
    "PrometheusCollector",
    "alert_rules",
    "dashboard",
    "export_to_opentelemetry",
]

_NAMES: Final = {
    "kinesis_spout.monitoring.examples": ("alert_rules", "dashboard"),
    "kinesis_spout.monitoring.metrics": ("METRICS", "Kind", "Metric"),
    "kinesis_spout.monitoring.otel": ("export_to_opentelemetry",),
    "kinesis_spout.monitoring.prometheus": ("PrometheusCollector",),
    "kinesis_spout.monitoring.server": ("MonitoringServer",),
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
