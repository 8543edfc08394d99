"""Debian's Prometheus on loopback, with the alert rules of the package sped up."""

import json
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import yaml

from examples.demo.processes.endpoint import free_ports
from tests.support.waiting import wait_until

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION: Final = re.compile(r"(?<=[\[ ])(\d+)([smhd])\b")
"""Of a range, or of an offset."""
_THRESHOLD: Final = re.compile(r"\b(\d+) \* (60|3600)\b")
"""As the rules write seconds."""
_READ_EVERY: Final = "2s"
_LOOK_EVERY: Final = "500ms"


class SpedUp:
    """Turns rules that look at minutes into such that look at seconds.

    No time becomes shorter than ``least``. None for which an alert has to hold becomes longer than ``most_for``:
    two reads that are missed in a row begin it anew, so a long one may never end on a busy machine.
    """

    def __init__(self, factor: float, least_seconds: float, most_for_seconds: float) -> None:
        self._factor = factor
        self._least = least_seconds
        self._most_for = most_for_seconds

    def seconds(self, seconds: float) -> float:
        return max(self._least, seconds / self._factor)

    def rules(self, text: str) -> str:
        """The rules, as JSON, which is YAML."""
        document = yaml.safe_load(text)
        for group in document["groups"]:
            for rule in group["rules"]:
                rule["expr"] = _THRESHOLD.sub(self._threshold, _DURATION.sub(self._duration, rule["expr"]))
                if "for" in rule:
                    (held,) = _DURATION.finditer(f" {rule['for']}")
                    seconds = min(self._most_for, self._seconds(held))
                    rule["for"] = f"{seconds * 1000:.0f}ms"
        return json.dumps(document)

    def _seconds(self, found: re.Match[str]) -> float:
        return self.seconds(int(found[1]) * _SECONDS[found[2]])

    def _duration(self, found: re.Match[str]) -> str:
        return f"{self._seconds(found) * 1000:.0f}ms"

    def _threshold(self, found: re.Match[str]) -> str:
        return f"{self.seconds(int(found[1]) * int(found[2])):g}"


class Prometheus:
    """A process that reads these addresses every two seconds. A context manager."""

    def __init__(self, folder: Path, targets: Iterable[str], rules: str) -> None:
        self._folder = folder
        (port,) = free_ports(1)
        self._address = f"127.0.0.1:{port}"
        self.began = time.time()
        (folder / "rules.yml").write_text(rules)
        config = {
            "global": {
                "scrape_interval": _READ_EVERY,
                "scrape_timeout": _READ_EVERY,
                "evaluation_interval": _LOOK_EVERY,
            },
            "rule_files": ["rules.yml"],
            "scrape_configs": [{"job_name": "kinesis-spout", "static_configs": [{"targets": list(targets)}]}],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address={self._address}",
                    "--log.level=warn",
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an instant query."""
        return list(self._get("query", {"query": expression})["data"]["result"])

    def alerts(self) -> list[dict[str, Any]]:
        """What is pending or fires now, with its annotations."""
        return list(self._get("alerts", {})["data"]["alerts"])

    def fired(self, since: float) -> list[dict[str, str]]:
        """The labels of all that fired at some time after ``since``, in seconds since the epoch."""
        now = time.time()
        window = f"{max(1, (now - since) * 1000):.0f}ms"
        found = self._get(
            "query",
            {"query": f'last_over_time(ALERTS{{alertstate="firing"}}[{window}])', "time": f"{now:.3f}"},
        )
        return [series["metric"] for series in found["data"]["result"]]

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text()

    def _get(self, what: str, query: Mapping[str, str]) -> Any:
        asked = f"http://{self._address}/api/v1/{what}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return json.load(answer)

    def _is_up(self) -> bool:
        assert self._process.poll() is None, self.log
        try:
            return bool(self.query("up == 1"))
        except urllib.error.URLError:
            return False

    def __enter__(self) -> Self:
        try:
            wait_until(self._is_up, "Prometheus to read its targets")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait(timeout=60)
