"""The stored progress of an application on a stream: as it is, and how to change it.

A reset puts shards where a first start at the target would have put them. So it includes every shard that the
stream still lists: parents that were over are read again (from the target on) before their children, and a
child that no member has begun yet begins at the target too, not at its oldest record. A shard that is not
listed any more has nothing left to read, and keeps what is stored.

A preview of a reset counts which records would come again and which would never be delivered, by reading them, up
to a limit; nothing consumes meanwhile, for a reset is refused then.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from kinesis_spout.model.clock import moment
from kinesis_spout.model.errors import KinesisError, StoreError
from kinesis_spout.model.record import Record
from kinesis_spout.operations.audit import Audit, Operator
from kinesis_spout.operations.errors import NotFound, WrongArguments
from kinesis_spout.operations.shards import unfinished_document
from kinesis_spout.operations.world import StreamAccess, World, begun_progress
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.grammar.positions import parse_position, resolved
from kinesis_spout.settings.setting_messages import NotAllowed
from shard_state import SHARD_END, SHARD_START, Checkpoint, Position, SequenceNumber, Shard
from shard_state.lineage import parents_first

TARGETS: Final = (
    "trim_horizon, latest, an ISO 8601 time with its zone, seconds since the epoch, or at_sequence_number and the "
    "number"
)

_KEYS: Final = (
    "shard_id", "parents", "owner", "unreadable", "checkpoint", "start", "goes_on_at", "epoch", "app_instance",
    "anchor", "holes", "unfinished",
)  # fmt: skip
"""The keys of a shard's document; a value that cannot be read is null."""

_COUNTED_SHARDS: Final = 64
"""The most shards whose records are counted: each costs a few reads."""
_COUNTED_RECORDS: Final = 3_000
_PAGE_RECORDS: Final = 1_000
_MAX_PAGES: Final = 8
"""An emulator, or a shard with gaps in time, may give empty pages."""
_READERS: Final = 16


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
            "parents": list(checkpoint.parents),
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
        stored, unreadable, _ = progress.read_shards()
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
    """Parse the target of a reset (see ``settings.grammar.positions``); LATEST is the time ``now``."""
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
    """Plan a reset of the named shards, or of all, to one of ``TARGETS``; give it with a function that writes it.

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
        summary = stream.lister.summary()
        application.check_stream(summary.created, f"{config.app} on {config.stream_name}", summary.arn)
        stored, _, _ = progress.read_shards()
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
            Audit(world, config).note(None, "forget", f"{len(shard_ids)} shards")  # its entries are gone, too

        yield shard_ids, carry_out


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCount:
    records: int
    is_least: bool = False
    """There are more: counting ended at its limit."""
    oldest: float | None = None
    """When the first of them arrived."""

    def __str__(self) -> str:
        return f"{self.records:,}" + (" or more" if self.is_least else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetEffect:
    shard_id: str
    before: str | None
    """The place where it continues now; None if nothing can be read."""
    after: str | None
    """None for a shard that keeps what is stored."""
    reason: str | None
    again: RecordCount | None = None
    """Finished records that would be delivered again; None where it cannot be said."""
    skipped: RecordCount | None = None
    """Unfinished records that would never be delivered; None where it cannot be said."""
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetPreview:
    target: str
    """The place as it was understood: the time itself where LATEST was asked for."""
    effects: Sequence[ResetEffect]

    @property
    def changed(self) -> int:
        """The number of shards that would be written."""
        return sum(each.after is not None for each in self.effects)


def preview_reset(world: World, config: SpoutConfig, to: str, shard_ids: Sequence[str]) -> ResetPreview:
    """Raises as ``planned_reset``: a reset that would be refused has no preview."""
    position = parse_target(to, world.time())
    target = to if position.timestamp is None else moment(position.timestamp)
    with planned_reset(world, config, target, shard_ids) as (moves, _):
        counted, others = moves[:_COUNTED_SHARDS], moves[_COUNTED_SHARDS:]
        stream = world.stream(config)
        with ThreadPoolExecutor(_READERS, "kinesis-spout-preview") as readers:
            effects = list(readers.map(lambda move: _counted(move, stream), counted))
    return ResetPreview(
        target=target, effects=[*effects, *(ResetEffect(**move.document()) for move in others)]
    )


def reset_as_previewed(
    world: World, config: SpoutConfig, target: str, shard_ids: Sequence[str], *, expected: int, by: Operator
) -> None:
    """Reset to the ``target`` of a preview, which changed ``expected`` shards.

    WrongArguments: it would change another number of shards now.
    """
    with planned_reset(world, config, target, shard_ids, by) as (moves, carry_out):
        changed = sum(move.after is not None for move in moves)
        if changed != expected:
            raise WrongArguments(
                f"expected {expected} shards to change, got {changed}: look at the preview again"
            )
        carry_out()


def _counted(move: Move, stream: StreamAccess) -> ResetEffect:
    effect = ResetEffect(**move.document())
    before, after = move.before, move.after
    if before is None or after is None:
        return effect
    try:
        again = _count(
            stream,
            move.shard_id,
            after.read_from,
            counts=lambda record: _is_finished(before, record),
            ends=lambda record: record.sequence > _last_finished(before),
        )
        skipped = (
            RecordCount(records=0)
            if before.is_shard_end
            else _count(
                stream,
                move.shard_id,
                before.read_from,
                counts=lambda record: not _is_finished(before, record),
                ends=lambda record: _is_included(after.read_from, record),
            )
        )
    except KinesisError as error:
        return replace(effect, problem=str(error))
    return replace(effect, again=again, skipped=skipped)


def _count(
    stream: StreamAccess,
    shard_id: str,
    start: Position,
    *,
    counts: Callable[[Record], bool],
    ends: Callable[[Record], bool],
) -> RecordCount:
    records, read, oldest = 0, 0, None
    with closing(stream.open_getter(shard_id, start)) as getter:
        for _ in range(_MAX_PAGES):
            page = getter.read(_PAGE_RECORDS)
            for record in page.records:
                if ends(record):
                    return RecordCount(records=records, oldest=oldest)
                if counts(record):
                    records += 1
                    oldest = oldest if oldest is not None else record.arrival_timestamp
            read += len(page.records)
            if page.at_end or (page.millis_behind_latest == 0 and not page.holds_at_least(_PAGE_RECORDS)):
                return RecordCount(records=records, oldest=oldest)
            if read >= _COUNTED_RECORDS:
                break
    return RecordCount(records=records, is_least=True, oldest=oldest)


def _last_finished(checkpoint: Checkpoint) -> SequenceNumber:
    return max([checkpoint.base, *(last for _, last in checkpoint.holes)])


def _is_finished(checkpoint: Checkpoint, record: Record) -> bool:
    sequence = record.sequence
    return sequence <= checkpoint.base or any(after < sequence <= last for after, last in checkpoint.holes)


def _is_included(position: Position, record: Record) -> bool:
    """Say whether a reset to there delivers it."""
    if position.timestamp is not None and record.arrival_timestamp is not None:
        return record.arrival_timestamp >= position.timestamp
    return position.includes(record.sequence)
