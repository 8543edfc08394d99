"""The stored form of a shard's progress: one value, written in one write (invariant 11).

    base       everything up to and including it is finished
    start      where reading began, resolved; used while base is SHARD_START
    holes      runs of finished records beyond the base, in order: (after, last], like the base itself
    anchor     the record that comes right after the base: the first unfinished one
    attempts   how often each unfinished record was delivered, where that failed at least once
    epoch      the ownership under which this was written
    app_instance   which start of which application wrote it

The holes are only a saving: without them records are delivered again, none is lost. So two rules make them
safe. On re-read, the first record after the base must be the anchor, else holes and attempts are dropped. And
when the encoded form would grow beyond its cap, the holes furthest from the base are left out.

The form is JSON with a version. Sequence numbers are text, as everywhere else: a person can read it with any
ZooKeeper client. A newer version than this code knows is an error, never a fresh start.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from shard_state.errors import InvalidCheckpoint, InvalidSequenceNumber
from shard_state.position import Position, PositionType
from shard_state.sequence_number import SHARD_END, SHARD_START, SequenceNumber

VERSION: Final = 1

MAX_ENCODED_BYTES: Final = 256 * 1024
"""A quarter of what ZooKeeper takes in one request (``jute.maxbuffer``, 1 MiB by default)."""

T = TypeVar("T")

Hole = tuple[SequenceNumber, SequenceNumber]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A shard's progress, as stored. See the module's text for the fields."""

    start: Position
    base: SequenceNumber = SHARD_START
    holes: tuple[Hole, ...] = ()
    anchor: SequenceNumber | None = None
    attempts: tuple[tuple[SequenceNumber, int], ...] = ()
    epoch: int = 0
    app_instance: str = ""

    @property
    def is_shard_end(self) -> bool:
        """Whether the shard is over: nothing is left to read or to finish."""
        return self.base == SHARD_END

    @property
    def read_from(self) -> Position:
        """Where an owner that knows nothing else reads on."""
        return self.start.advanced_to(self.base)

    def encode(self, max_bytes: int = MAX_ENCODED_BYTES) -> bytes:
        """Give the stored form, at most ``max_bytes`` long: leaves out the furthest holes, then attempts.

        Raises:
            InvalidCheckpoint: the start is LATEST, which must be resolved before it is stored (invariant 9).
        """
        if self.start.type is PositionType.LATEST:
            raise InvalidCheckpoint(
                "expected a resolved start, got LATEST: resolved again after a restart, it would skip records; "
                "store Position.resolved(now)"
            )
        encoded = self._encode_all()
        kept = self
        while len(encoded) > max_bytes and (kept.holes or kept.attempts):
            excess = 1 - max_bytes / len(encoded)
            kept = replace(
                kept,
                holes=_without_tail(kept.holes, excess),
                attempts=_without_tail(kept.attempts, excess) if not kept.holes else kept.attempts,
            )
            encoded = kept._encode_all()  # noqa: SLF001 - the same class
        return encoded

    def _encode_all(self) -> bytes:
        document: dict[str, Any] = {
            "version": VERSION,
            "base": str(self.base),
            "start": self.start.as_document(),
            "epoch": self.epoch,
            "app_instance": self.app_instance,
        }
        if self.holes:
            document["holes"] = [[str(after), str(last)] for after, last in self.holes]
        if self.attempts:
            document["attempts"] = {str(sequence): count for sequence, count in self.attempts}
        if self.anchor is not None:
            document["anchor"] = str(self.anchor)
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, stored: bytes) -> "Checkpoint":
        """Read the stored form of this or an older version.

        Raises:
            InvalidCheckpoint: when it cannot be read, or is of a newer version.
        """
        try:
            document = json.loads(stored)
            version = document["version"]
            if version != VERSION:
                raise InvalidCheckpoint(
                    f"expected a checkpoint of version {VERSION}, got version {version!r}: "
                    "it was written by a newer kinesis-spout; upgrade this one"
                )
            anchor = document.get("anchor")
            base = SequenceNumber.parse(document["base"])
            return cls(
                start=Position.from_document(document["start"]),
                base=base,
                holes=_holes(document.get("holes", ()), base),
                anchor=None if anchor is None else SequenceNumber.parse(anchor),
                attempts=tuple(
                    (SequenceNumber.parse(sequence), int(count))
                    for sequence, count in document.get("attempts", {}).items()
                ),
                epoch=int(document["epoch"]),
                app_instance=str(document["app_instance"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, InvalidSequenceNumber) as error:
            if isinstance(error, InvalidCheckpoint):
                raise
            raise InvalidCheckpoint(
                f"expected a stored checkpoint (JSON, version {VERSION}), got {stored[:200]!r}: {error!r}. "
                "Look at it with `kinesis-spout checkpoints show`; to give it up, use `checkpoints reset`"
            ) from error


def _without_tail(items: tuple[T, ...], share: float) -> tuple[T, ...]:
    drop = max(1, int(len(items) * share))
    return items[:-drop]


def _holes(documents: Iterable[tuple[str, str]], base: SequenceNumber) -> tuple[Hole, ...]:
    holes = tuple((SequenceNumber.parse(after), SequenceNumber.parse(last)) for after, last in documents)
    reached = base
    for after, last in holes:
        if not reached <= after < last:
            raise ValueError(f"expected holes in order beyond {base}, got {after}..{last} after {reached}")
        reached = last
    return holes
