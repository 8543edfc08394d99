"""The file that ``topology run`` writes and ``topology show`` reads: a line of JSON for each micro-batch."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from kinesis_spout.operations.errors import NotFound, WrongArguments

if TYPE_CHECKING:
    from kinesis_spout.storm.running.counts import ComponentCounts
    from kinesis_spout.storm.spark.topology_query import TopologyQuery

_LOOKED_AT_BYTES: Final = 1 << 20
"""At the end of the file; a line is a few kilobytes long."""


class ProgressFile:
    """Appends what is new of a query's progress. Mutable."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise WrongArguments(f"--progress: expected a file that can be written, got {error}") from error
        self._written: set[tuple[str, int, str]] = set()
        """Spout, number and end of the micro-batches that were recent in the last call."""

    def add(self, query: "TopologyQuery") -> None:
        """Append the micro-batches that ended since the last call; the newest with the components' totals.

        Their numbers do not say which those are: several run at a time, and each stream of a spout has its
        own.
        """
        recent: set[tuple[str, int, str]] = set()
        for progress in query.recentProgress:
            micro_batch = (progress["spout"], progress["batchId"], progress["timestamp"])
            recent.add(micro_batch)
            if micro_batch not in self._written:
                self._file.write(json.dumps(progress) + "\n")
        self._written = recent
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def newest_counts(path: Path, components: Collection[str]) -> Mapping[str, "ComponentCounts"]:
    from kinesis_spout.storm.running.counts import ComponentCounts  # noqa: PLC0415 - PySpark is slow

    for line in reversed(_last_lines(path)):
        try:
            progress: Any = json.loads(line)
            if not isinstance(progress, dict) or "components" not in progress:
                continue
            counts = {name: ComponentCounts.from_told(told) for name, told in progress["components"].items()}
        except (ValueError, TypeError, AttributeError) as error:
            raise WrongArguments(
                f"--progress: expected a file that `topology run --progress` has written, got {path}: {error}"
            ) from error
        _check_topology(path, counts, components)
        return counts
    raise NotFound(
        f"{path}: no micro-batch has ended yet; `topology run --progress {path}` adds a line for each that does"
    )


def _check_topology(path: Path, counts: Collection[str], components: Collection[str]) -> None:
    others = [name for name in counts if name not in components]
    if others:
        raise WrongArguments(
            f"--progress: expected the progress of this topology ({', '.join(components)}), got {path}, which has "
            f"{', '.join(others)}"
        )


def _last_lines(path: Path) -> list[bytes]:
    """The whole lines at the end of the file; the last one can be half written."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _LOOKED_AT_BYTES))
            lines = file.read().split(b"\n")
    except OSError as error:
        raise WrongArguments(f"--progress: expected a file that can be read, got {error}") from error
    return lines[1 if size > _LOOKED_AT_BYTES else 0 : -1]
