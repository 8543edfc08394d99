"""Alert rules for Prometheus and a dashboard for Grafana to begin with, both on the table's names.

They are files of the package; ``kinesis-spout metrics --alerts`` and ``--dashboard`` print them. Copy them, and
set the thresholds that fit your records.
"""

from importlib.resources import files
from typing import Final

_FILES: Final = files(__name__)


def alert_rules() -> str:
    """The rules as Prometheus reads them, in YAML. Each alert names the section of its runbook."""
    return _FILES.joinpath("alerts.yml").read_text(encoding="utf-8")


def dashboard() -> str:
    """The dashboard as Grafana imports it, in JSON. Its data source is one of its variables."""
    return _FILES.joinpath("dashboard.json").read_text(encoding="utf-8")
