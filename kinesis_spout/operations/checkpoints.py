"""The stored progress of an application on a stream: as it is, and how to change it.

A reset puts shards where a first start at the target would have put them. So it includes every shard that the
stream still lists: parents that were over are read again (from the target on) before their children, and a
child that no member has begun yet begins at the target too, not at its oldest record. A shard that is not
listed any more has nothing left to read, and keeps what is stored.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from kinesis_spout.model.clock import moment
from kinesis_spout.model.errors import StoreError
from kinesis_spout.operations.audit import Audit, Operator
from kinesis_spout.operations.errors import NotFound, WrongArguments
from kinesis_spout.operations.shards import unfinished_document
from kinesis_spout.operations.world import World, begun_progress
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.grammar.positions import parse_position, resolved
from kinesis_spout.settings.setting_messages import NotAllowed
from shard_state import SHARD_END, SHARD_START, Checkpoint, Position, Shard
from shard_state.shards.lineage import parents_first

TARGETS: Final = (
    "trim_horizon, latest, an ISO 8601 time with its zone, seconds since the epoch, or at_sequence_number and the "
    "number"
)

_KEYS: Final = (
    "shard_id", "parents", "owner", "unreadable", "checkpoint", "start", "goes_on_at", "epoch", "app_instance",
    "anchor", "holes", "unfinished",
)  # fmt: skip
"""Of a shard's document; what cannot be read is null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointsView:
    begun: Mapping[str, Any] | None
    """The creation time of the stream it began on, and where; None if it has not begun."""
    members: Sequence[str]
    owners: Mapping[str, str]
    stored: Mapping[str, Checkpoint | None]
    unreadable: Mapping[str, str]

    def document(self, config: SpoutConfig) -> dict[str, Any]:
        return {
            "app": config.app,
            "stream": config.stream_name,
            "begun": self.begun,
            "members": self.members,
            "shards": [self._shard(shard_id, checkpoint) for shard_id, checkpoint in self.stored.items()],
        }

    def _shard(self, shard_id: str, checkpoint: Checkpoint | None) -> dict[str, Any]:
        document = dict.fromkeys(_KEYS) | {"shard_id": shard_id, "owner": self.owners.get(shard_id)}
        if checkpoint is None:
            return document | {"unreadable": self.unreadable.get(shard_id)}
        return document | {
            "parents": None if checkpoint.parents is None else list(checkpoint.parents),
            "checkpoint": str(checkpoint.base),
            "start": str(checkpoint.start),
            "goes_on_at": None if checkpoint.is_shard_end else str(checkpoint.read_from),
            "epoch": checkpoint.epoch,
            "app_instance": checkpoint.app_instance,
            "anchor": None if checkpoint.anchor is None else str(checkpoint.anchor),
            "holes": [[str(after), str(last)] for after, last in checkpoint.holes],
            "unfinished": unfinished_document(checkpoint.attempts),
        }


def view_checkpoints(world: World, config: SpoutConfig) -> CheckpointsView:
    """Read the stored progress of every shard, readable or not. Does not connect to Kinesis."""
    with begun_progress(world, config) as progress:
        application = progress.store.read_application()
        stored, unreadable = progress.read_shards()
        return CheckpointsView(
            begun=None
            if application is None
            else {"stream_created": application.stream_created, "start": str(application.start)},
            members=progress.coordinator.members(),
            owners=progress.store.owners(),
            stored=stored,
            unreadable=unreadable,
        )


def parse_target(text: str, now: float) -> Position:
    """Where a reset goes (see ``settings.grammar.positions``); LATEST is the time ``now``."""
    try:
        return resolved(parse_position(text, TARGETS), now, text)
    except NotAllowed as error:
        raise WrongArguments(f"to: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One shard of a reset. ``after`` is None for one that keeps what is stored."""

    shard_id: str
    before: Checkpoint | None
    after: Checkpoint | None
    reason: str = ""

    def document(self) -> dict[str, Any]:
        return {
            "shard_id": self.shard_id,
            "before": None if self.before is None else checkpoint_text(self.before),
            "after": None if self.after is None else checkpoint_text(self.after),
            "reason": self.reason or None,
        }


@contextmanager
def planned_reset(
    world: World,
    config: SpoutConfig,
    to: str,
    shard_ids: Collection[str] = (),
    by: Operator | None = None,
) -> Iterator[tuple[Sequence[Move], Callable[[], None]]]:
    """What a reset to one of ``TARGETS`` would write, of the named shards or all; and a function that writes it.

    It can be called until the context ends.
    """
    target = parse_target(to, world.time())
    with begun_progress(world, config) as progress:
        application = progress.store.read_application()
        if application is None:
            raise StoreError(
                f"{config.app} has not begun on {config.stream_name}; there is nothing to reset. "
                "`initial_position` says where its first start begins"
            )
        progress.refuse_while_alive("reset")
        stream = world.stream(config)
        application.check_stream(stream.lister.summary().created, f"{config.app} on {config.stream_name}")
        stored, _ = progress.read_shards()
        moves = _plan(target, stream.lister.list_shards(), stored, shard_ids)
        if target.sequence_number is not None:
            # Refused now, rather than by the consumer that would start there.
            stream.open_getter(moves[0].shard_id, target).read(1)
        written = {move.shard_id: move.after for move in moves if move.after is not None}

        def carry_out() -> None:
            progress.store.reset(written)
            what = ", ".join(shard_ids) or f"{len(written)} shards"
            Audit(world, config, by).note(progress, "reset", f"{what} to {to}")

        yield moves, carry_out


def _plan(
    target: Position,
    listed: Sequence[Shard],
    stored: Mapping[str, Checkpoint | None],
    chosen: Collection[str],
) -> list[Move]:
    if target.sequence_number is not None and len(set(chosen)) != 1:
        raise WrongArguments(
            f"shard: expected exactly one with a sequence number, which is a record of one shard, got "
            f"{len(set(chosen))}"
        )
    in_order = parents_first(listed)
    listed_ids = [shard.shard_id for shard in in_order]
    unknown = sorted(set(chosen).difference(listed_ids))
    if unknown:
        raise NotFound(
            f"expected shards that the stream lists ({', '.join(listed_ids)}), got {', '.join(unknown)}; a shard "
            "that is not listed has nothing left to read"
        )
    moves = [
        Move(
            shard_id=shard.shard_id,
            before=stored.get(shard.shard_id),
            after=Checkpoint.beginning_at(target, parents=shard.parents),
            reason="could not be read" if stored.get(shard.shard_id, target) is None else "",
        )
        for shard in in_order
        if not chosen or shard.shard_id in chosen
    ]
    if not chosen:
        moves += [_leave(shard_id, stored[shard_id]) for shard_id in sorted(stored.keys() - set(listed_ids))]
    return moves


def _leave(shard_id: str, before: Checkpoint | None) -> Move:
    if before is not None:
        return Move(shard_id=shard_id, before=before, after=None, reason="not listed any more")
    # Unreadable, and nothing left to read: it can only be over, and consumers can start again.
    ended = Checkpoint(start=Position.trim_horizon(), base=SHARD_END)
    return Move(
        shard_id=shard_id, before=None, after=ended, reason="not listed any more, and could not be read"
    )


def checkpoint_text(checkpoint: Checkpoint) -> str:
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


@contextmanager
def planned_forgetting(
    world: World, config: SpoutConfig
) -> Iterator[tuple[Sequence[str], Callable[[], None]]]:
    """The shards whose progress would be forgotten, and a function that does it, until the context ends."""
    with world.progress(config) as progress:
        progress.refuse_while_alive("forget")
        shard_ids = progress.store.shard_ids()
        progress.check_begun(config)

        def carry_out() -> None:
            progress.store.forget()
            Audit(world, config).note(progress, "forget", f"{len(shard_ids)} shards")

        yield shard_ids, carry_out
