"""What a reset writes: pure, so that it can be shown before it is done.

A reset puts shards where a first start at the target would have put them. So it takes in every shard that the
stream still lists: parents that were over are read again (from the target on) before their children, and a
child that nobody has begun yet begins at the target too, not at its oldest record. A shard that is not listed
any more has nothing left to read, and keeps what is stored.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kinesis_spout.cli.failures import NotFound, WrongArguments
from kinesis_spout.model.clock import moment
from kinesis_spout.settings.grammar.positions import parse_position, resolved
from kinesis_spout.settings.messages import NotAllowed
from shard_state import SHARD_END, SHARD_START, Checkpoint, Position, Shard
from shard_state.shards.lineage import parents_first

_ALLOWED: Final = (
    "trim_horizon, latest, an ISO 8601 time with its zone, seconds since the epoch, or at_sequence_number and the "
    "number"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a reset goes."""

    position: Position
    """Resolved: never LATEST."""

    @property
    def is_sequence_number(self) -> bool:
        """Whether the target is a record of one shard, rather than a time in all of them."""
        return self.position.sequence_number is not None

    def checkpoint(self, shard: Shard) -> Checkpoint:
        """Give what is stored of a shard that goes there."""
        return Checkpoint.beginning_at(self.position, parents=shard.parents)


def parse_target(text: str, now: float) -> Target:
    """Read what ``--to`` was given (see ``settings.positions``); LATEST is the time ``now``.

    Raises:
        WrongArguments: says what is allowed.
    """
    try:
        position = resolved(parse_position(text, _ALLOWED), now, text)
    except NotAllowed as error:
        raise WrongArguments(f"--to: {error}") from error
    return Target(position=position)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One shard of the plan. ``after`` is None for one that keeps what is stored."""

    shard_id: str
    before: Checkpoint | None
    after: Checkpoint | None
    reason: str = ""


def plan_reset(
    target: Target,
    listed: Sequence[Shard],
    stored: Mapping[str, Checkpoint | None],
    chosen: Collection[str] = (),
) -> list[Move]:
    """Say what becomes of each shard, parents before children.

    Args:
        target: where to go.
        listed: every shard that the stream lists.
        stored: every shard that something is stored of; None where it cannot be read.
        chosen: only these shards; none means all.

    Raises:
        WrongArguments: the target is in one shard, and not exactly one was chosen.
        NotFound: a chosen shard is not listed.
    """
    if target.is_sequence_number and len(set(chosen)) != 1:
        raise WrongArguments(
            f"--shard: expected exactly one with a sequence number, which is a record of one shard, got "
            f"{len(set(chosen))}"
        )
    in_order = parents_first(listed)
    unknown = sorted(set(chosen) - {shard.shard_id for shard in in_order})
    if unknown:
        raise NotFound(
            f"expected shards that the stream lists ({', '.join(shard.shard_id for shard in in_order)}), got "
            f"{', '.join(unknown)}; a shard that is not listed has nothing left to read"
        )
    moves = [
        Move(
            shard_id=shard.shard_id,
            before=stored.get(shard.shard_id),
            after=target.checkpoint(shard),
            reason="could not be read" if stored.get(shard.shard_id, target) is None else "",
        )
        for shard in in_order
        if not chosen or shard.shard_id in chosen
    ]
    if not chosen:
        gone = sorted(stored.keys() - {shard.shard_id for shard in in_order})
        moves += [_leave(shard_id, stored[shard_id]) for shard_id in gone]
    return moves


def _leave(shard_id: str, before: Checkpoint | None) -> Move:
    if before is not None:
        return Move(shard_id=shard_id, before=before, after=None, reason="not listed any more")
    # Unreadable, and nothing left to read: over is all that it can be, and consumers can start again.
    ended = Checkpoint(start=Position.trim_horizon(), base=SHARD_END)
    return Move(
        shard_id=shard_id, before=None, after=ended, reason="not listed any more, and could not be read"
    )


def checkpoint_text(checkpoint: Checkpoint) -> str:
    """Say for people where a checkpoint stands."""
    if checkpoint.base == SHARD_END:
        return str(checkpoint.base)
    position = checkpoint.read_from
    if position.timestamp is not None:
        return moment(position.timestamp)
    if position.sequence_number is not None:
        # One inside an aggregate is read "at", and then up to the base passed over.
        return (
            f"at {position.sequence_number}" if checkpoint.base == SHARD_START else f"after {checkpoint.base}"
        )
    return str(position)
