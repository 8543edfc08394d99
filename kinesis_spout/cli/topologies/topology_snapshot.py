"""How a topology goes at one moment: what its spouts read, and what each component has done."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kinesis_spout.cli.runs.snapshot import CountersReading, Reading, Snapshot

if TYPE_CHECKING:
    from kinesis_spout.storm.running.counts import ComponentCounts
    from kinesis_spout.storm.spark.query import TopologyQuery

_HEADINGS: Final = ("component", "executed", "emitted", "acked", "failed", "timed out", "latency")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologySnapshot:
    """What is shown of a topology; the counts are since its start, the latencies of ten minutes."""

    spouts: Mapping[str, Snapshot]
    """Those of your own come last."""
    components: "Mapping[str, ComponentCounts]"

    @property
    def state(self) -> str:
        """starting, running, paused, stopping, stopped or failed."""
        return self._together.state

    @property
    def paused(self) -> str | None:
        """Why deliveries pause; None while they do not."""
        return self._together.paused

    @property
    def last_error(self) -> str | None:
        """What is being retried."""
        return self._together.last_error

    def document(self, *, detailed: bool) -> dict[str, Any]:
        """Give it as JSON, with keys that stay: the sums of all spouts, each spout, each component."""
        document = self._together.document(detailed=False)
        del document["shards"]
        document["spouts"] = {
            name: snapshot.document(detailed=detailed) for name, snapshot in self.spouts.items()
        }
        document["components"] = {name: counts.told() for name, counts in self.components.items()}
        return document

    def line(self) -> str:
        """Give it as a line of text."""
        return self._together.line()

    def details(self) -> tuple[Sequence[str], list[list[str]]]:
        """Give the headings and the rows of a table: its components."""
        from kinesis_spout.storm.picture.wiring import latency_text  # noqa: PLC0415 - slow to import

        return _HEADINGS, [
            [
                name,
                "-" if name in self.spouts else f"{counts.executed:,}",
                f"{counts.emitted:,}",
                f"{counts.acked:,}",
                f"{counts.failed:,}",
                f"{counts.timed_out:,}",
                latency_text(counts) or "-",
            ]
            for name, counts in self.components.items()
        ]

    @property
    def _together(self) -> Snapshot:
        first, *others = self.spouts.values()
        for other in others:
            first = first.plus(other)
        return first


class TopologyReading:
    """Takes snapshots of a running topology. Mutable: rates are over the time since the last one."""

    def __init__(self, query: "TopologyQuery") -> None:
        self._query = query
        self._readings: dict[str, Reading | CountersReading] = {
            **{name: Reading(spout) for name, spout in query.spouts.items()},
            **{name: CountersReading(spout) for name, spout in query.own_spouts.items()},
        }

    def take(self, state: str) -> TopologySnapshot:
        """Look now."""
        return TopologySnapshot(
            spouts={name: reading.take(state) for name, reading in self._readings.items()},
            components=self._query.components,
        )
