"""The stored form of a shard's progress: one value, written in one write (invariant 11).

    base       everything up to and including it is finished
    start      where reading began, resolved; used while base is SHARD_START
    holes      runs of finished records beyond the base, in order: (after, last], like the base itself
    anchor     the nearest record beyond the base that is known: the first unfinished one
    attempts   how often each unfinished record was delivered, where that failed at least once
    parents    the shards that this one came from
    since      nothing beyond the base arrived earlier (seconds since the epoch); None if nobody knew
    data_losses   how often records can have been trimmed unread, each of which was logged
    epoch      the ownership under which this was written
    app_instance   which start of which application wrote it
    experience     what its deliveries came to lately (``shard_state.blame``), for the next owner

The holes are only a saving: without them records are delivered again, none is lost. So two rules make them
safe. On re-read, the first record after the base must not lie beyond the anchor, else holes and attempts are
dropped (``fits``). And when the encoded form would grow beyond its cap, what is furthest from the base is left
out, holes and attempts alike.

The form is JSON with a version. Base and anchor are plain text, as everywhere else: a person can read them with
any ZooKeeper client; ``hole_map`` explains the text of holes and attempts, of which there may be thousands.

The last field is a checksum of all bytes before it: digits that were damaged, or changed by hand, would be
another position, so they are an error. It is CRC-32, because the enemy is an accident: it finds every change of up
to 32 bits in a row, every single byte for one, costs microseconds, and is in the standard library.

Another version than this code knows is an error, never a fresh start; a field that it does not know is ignored.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from shard_state.blame import Experience
from shard_state.checkpoint import hole_map
from shard_state.checkpoint.hole_map import Attempts, Hole
from shard_state.errors import InvalidCheckpoint
from shard_state.position import Position, PositionType
from shard_state.sequence_number import SHARD_END, SHARD_START, SequenceNumber
from shard_state.stored_form import (
    check_seal,
    check_version,
    no_number,
    number,
    sealed,
    text,
    texts,
    whole_number,
)

__all__ = ["MAX_ENCODED_BYTES", "VERSION", "Checkpoint", "Hole", "fits", "next_ownership"]

VERSION: Final = 3
"""Forms with a lower one are of times before the first release, and are not read."""

MAX_ENCODED_BYTES: Final = 256 * 1024
"""A quarter of what ZooKeeper takes in one request (``jute.maxbuffer``, 1 MiB by default)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A shard's progress, as stored. See the module's text for the fields."""

    start: Position
    base: SequenceNumber = SHARD_START
    holes: tuple[Hole, ...] = ()
    anchor: SequenceNumber | None = None
    attempts: tuple[Attempts, ...] = ()
    parents: tuple[str, ...] = ()
    since: float | None = None
    data_losses: int = 0
    epoch: int = 0
    app_instance: str = ""
    experience: Experience | None = None
    _encoded: bytes | None = field(default=None, init=False, repr=False, compare=False)
    """The result of ``encode``."""

    @classmethod
    def beginning_at(
        cls, position: Position, *, parents: tuple[str, ...] = (), epoch: int = 0
    ) -> "Checkpoint":
        """Give the checkpoint of a shard of which nothing from ``position`` on is finished.

        Reads begin between two records of Kinesis. So a position inside an aggregated record is stored as the
        whole of it, whose user records up to there are finished.
        """
        number = position.sequence_number
        if number is None or number.is_whole:
            return cls(start=position, parents=parents, since=position.since, epoch=epoch)
        last_done = number.sub if position.is_done else number.sub - 1
        return cls(
            start=Position.at(SequenceNumber(number.number)),
            base=SequenceNumber(number.number, last_done) if last_done >= 0 else SHARD_START,
            parents=parents,
            epoch=epoch,
        )

    @property
    def is_shard_end(self) -> bool:
        """True if the shard is over: nothing is left to read or to finish."""
        return self.base == SHARD_END

    @property
    def read_from(self) -> Position:
        """The position from which an owner that knows nothing else reads on."""
        return self.start.advanced_to(self.base).known_since(self.since)

    def encode(self, max_bytes: int = MAX_ENCODED_BYTES) -> bytes:
        """Give the stored form, at most ``max_bytes`` long: leaves out what is furthest from the base.

        At the default length it is made once, and kept.

        Raises:
            InvalidCheckpoint: the start is LATEST, which must be resolved before it is stored (invariant 9);
                or holes and attempts are not in order beyond the base.
        """
        if max_bytes != MAX_ENCODED_BYTES:
            return self._written(max_bytes)
        if self._encoded is None:
            object.__setattr__(self, "_encoded", self._written(max_bytes))
        assert self._encoded is not None
        return self._encoded

    def _written(self, max_bytes: int) -> bytes:
        if self.start.type is PositionType.LATEST:
            raise InvalidCheckpoint(
                "expected a resolved start, got LATEST: resolved again after a restart, it would skip records; "
                "store Position.resolved(now)"
            )
        document: dict[str, Any] = {
            "version": VERSION,
            "base": str(self.base),
            "start": self.start.as_document(),
            "epoch": self.epoch,
            "app_instance": self.app_instance,
        }
        if self.parents:
            document["parents"] = self.parents
        if self.experience is not None:
            document["experience"] = self.experience.as_numbers()
        if self.anchor is not None:
            document["anchor"] = str(self.anchor)
        if self.since is not None:
            document["since"] = self.since
        if self.data_losses:
            document["data_losses"] = self.data_losses
        if self.holes or self.attempts:
            try:
                form = hole_map.written(self.base, self.holes, self.attempts)
            except ValueError as error:
                raise InvalidCheckpoint(f"cannot store a checkpoint: {error}") from error
            if form.origin != self.base.number:
                document["origin"] = str(form.origin)
            document["unit"] = str(form.unit)
            document |= form.fields(max_bytes - len(sealed(document)))
        return sealed(document)

    @classmethod
    def decode(cls, stored: bytes) -> "Checkpoint":
        """Read the stored form.

        Raises:
            InvalidCheckpoint: when it cannot be read, is damaged, or is of another version.
        """
        try:
            document = json.loads(stored, parse_constant=no_number)
            check_version(document["version"], VERSION, "a checkpoint", InvalidCheckpoint)
            check_seal(stored)
            return _decoded(document)
        except InvalidCheckpoint:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
            raise InvalidCheckpoint(
                f"expected a stored checkpoint (JSON, version {VERSION}), got {stored[:200]!r}: {error!r}. "
                "Look at it with `kinesis-spout checkpoints show`; to give it up, use `checkpoints reset`"
            ) from error


def fits(anchor: SequenceNumber | None, first_read: SequenceNumber) -> bool:
    """Tell whether the holes and attempts stored with an anchor speak of the records that are read now.

    The anchor was in the shard when they were stored, so no reading may begin beyond it. Without a stored
    anchor there is nothing to compare.
    """
    return anchor is None or first_read <= anchor


UNSEEN: Final = 0.0
"""The ``since`` of a shard whose parents the application has never seen: what retention took of them is unread."""


def next_ownership(
    stored: Checkpoint | None, fresh: Checkpoint, parents: Iterable[Checkpoint | None] = ()
) -> Checkpoint:
    """Give what is stored when somebody becomes the owner of a shard.

    The epoch is raised. Where nothing was stored before, ``fresh`` is: with the time from which on its records
    came, as what is stored of its ``parents`` says (None: nothing is). All of them had ended when the first came.
    """
    if stored is None:
        stored_parents = list(parents)
        known = [each.since for each in stored_parents if each is not None and each.since is not None]
        since = UNSEEN if None in stored_parents else max(known, default=fresh.since)
        return replace(fresh, epoch=1, since=since)
    return replace(stored, epoch=stored.epoch + 1)


def _decoded(document: dict[str, Any]) -> Checkpoint:
    anchor, numbers = document.get("anchor"), document.get("experience")
    base = SequenceNumber.parse(document["base"])
    holes, attempts = _map(document, base)
    return Checkpoint(
        start=Position.from_document(document["start"]),
        base=base,
        holes=holes,
        anchor=None if anchor is None else SequenceNumber.parse(anchor),
        attempts=attempts,
        parents=texts(document.get("parents", [])),
        since=None if document.get("since") is None else number(document["since"]),
        data_losses=whole_number(document.get("data_losses", 0)),
        epoch=whole_number(document["epoch"]),
        app_instance=text(document["app_instance"]),
        experience=None if numbers is None else Experience.of_numbers(numbers),
    )


def _map(document: dict[str, Any], base: SequenceNumber) -> tuple[tuple[Hole, ...], tuple[Attempts, ...]]:
    text = hole_map.unpacked(document["packed"]) if "packed" in document else document.get("map")
    if text is None:
        return (), ()
    origin = int(document.get("origin", base.number))
    return hole_map.read(text, base=base, origin=origin, unit=int(document["unit"]))
