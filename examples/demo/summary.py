"""What became of every record, and what the demo says about it."""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from examples.demo.milestones import Join, Kill
from kinesis_spout import DeadLetter


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The books of all records, from two witnesses: the handler's ledger and the dead letters."""

    produced: int
    acked: int
    """Records that the handler was done with at least once."""
    dead_lettered: int
    """Records of which there is a dead letter."""
    lost: tuple[int, ...]
    """Records of which neither is true."""
    duplicates: int
    """Records that the handler was done with more than once."""

    @property
    def finished(self) -> int:
        """How many records have their end."""
        return self.produced - len(self.lost)


def tally(produced: int, handled: Mapping[int, int], dead: Collection[int]) -> Tally:
    """Balance the books of records 0 to ``produced``.

    Args:
        produced: how many records are on the stream.
        handled: how often the handler was done with a record.
        dead: records of which there is a dead letter.
    """
    ids = range(produced)
    return Tally(
        produced=produced,
        acked=sum(handled.get(number, 0) > 0 for number in ids),
        dead_lettered=sum(number in dead for number in ids),
        lost=tuple(number for number in ids if number not in dead and handled.get(number, 0) == 0),
        duplicates=sum(handled.get(number, 0) > 1 for number in ids),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """How the demo went."""

    engine: str
    tally: Tally
    retries: int
    """Deliveries that were not the first of their record."""
    recovered: int
    """Records that the handler was done with at a retry."""
    ends_shards: bool
    """Whether shards could be split and merged at all; not where a closed shard never ends."""
    splits: int
    merges: int
    second: Join | None
    """How the second consumer joined; None if it was not started."""
    kills: tuple[Kill, ...]
    seconds: float
    unfinished: str | None = None
    """What had not happened by the deadline; None if all did."""
    examples: tuple[DeadLetter, ...] = ()
    directory: str | None = None
    """What was kept for a look."""

    @property
    def exit_code(self) -> int:
        """0 if every record has its end and all happened in time, else 1."""
        return int(bool(self.tally.lost) or self.unfinished is not None)

    def kept_in(self, directory: str) -> Self:
        """Give it with the folder that was kept for a look."""
        return replace(self, directory=directory)

    def as_json(self) -> dict[str, Any]:
        """Give everything as plain values."""
        return {
            "produced": self.tally.produced,
            "acked": self.tally.acked,
            "dead_lettered": self.tally.dead_lettered,
            "lost": len(self.tally.lost),
            "duplicates": self.tally.duplicates,
            "retries": self.retries,
            "recovered": self.recovered,
            "splits": self.splits,
            "merges": self.merges,
            "second": None if self.second is None else asdict(self.second),
            "kills": [asdict(kill) for kill in self.kills],
            "seconds": round(self.seconds, 1),
            "unfinished": self.unfinished,
            "engine": self.engine,
            "directory": self.directory,
        }
