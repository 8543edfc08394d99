"""What a reset would do to each shard: which records come again, which are never delivered.

Both are counted by reading records, up to a limit; nothing consumes meanwhile, for a reset is refused then.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

from kinesis_spout.model.clock import moment
from kinesis_spout.model.errors import KinesisError
from kinesis_spout.model.record import Record
from kinesis_spout.operations.audit import Operator
from kinesis_spout.operations.checkpoints import Move, checkpoint_text, parse_target, planned_reset
from kinesis_spout.operations.errors import WrongArguments
from kinesis_spout.operations.world import Stream, World
from kinesis_spout.settings import SpoutConfig
from shard_state import Checkpoint, Position, SequenceNumber

_COUNTED_SHARDS: Final = 64
"""Of more, the records are not counted: each costs a few reads."""
_COUNTED_RECORDS: Final = 3_000
_PAGE_RECORDS: Final = 1_000
_MAX_PAGES: Final = 8
"""An emulator, or a shard with gaps in time, may give empty pages."""
_READERS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
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
    """Where it continues now; None if nothing can be read."""
    after: str | None
    """None for a shard that keeps what is stored."""
    reason: str
    again: Count | None = None
    """Finished records that would be delivered again; None where it cannot be said."""
    skipped: Count | None = None
    """Unfinished records that would never be delivered; None where it cannot be said."""
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetPreview:
    target: str
    """The place as it was understood: the time itself where LATEST was asked for."""
    effects: Sequence[ResetEffect]

    @property
    def changed(self) -> int:
        """How many shards would be written."""
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
    return ResetPreview(target=target, effects=[*effects, *map(_effect, others)])


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


def _effect(move: Move) -> ResetEffect:
    return ResetEffect(
        shard_id=move.shard_id,
        before=None if move.before is None else checkpoint_text(move.before),
        after=None if move.after is None else checkpoint_text(move.after),
        reason=move.reason,
    )


def _counted(move: Move, stream: Stream) -> ResetEffect:
    effect = _effect(move)
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
            Count(records=0)
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
    stream: Stream,
    shard_id: str,
    start: Position,
    *,
    counts: Callable[[Record], bool],
    ends: Callable[[Record], bool],
) -> Count:
    records, read, oldest = 0, 0, None
    with closing(stream.open_getter(shard_id, start)) as getter:
        for _ in range(_MAX_PAGES):
            page = getter.read(_PAGE_RECORDS)
            for record in page.records:
                if ends(record):
                    return Count(records=records, oldest=oldest)
                if counts(record):
                    records += 1
                    oldest = oldest if oldest is not None else record.arrival_timestamp
            read += len(page.records)
            if page.at_end or (page.millis_behind_latest == 0 and not page.holds_at_least(_PAGE_RECORDS)):
                return Count(records=records, oldest=oldest)
            if read >= _COUNTED_RECORDS:
                break
    return Count(records=records, is_least=True, oldest=oldest)


def _last_finished(checkpoint: Checkpoint) -> SequenceNumber:
    return max([checkpoint.base, *(last for _, last in checkpoint.holes)])


def _is_finished(checkpoint: Checkpoint, record: Record) -> bool:
    sequence = record.sequence
    return sequence <= checkpoint.base or any(after < sequence <= last for after, last in checkpoint.holes)


def _is_included(position: Position, record: Record) -> bool:
    """Whether a reset to there delivers it."""
    if position.timestamp is not None and record.arrival_timestamp is not None:
        return record.arrival_timestamp >= position.timestamp
    return position.includes(record.sequence)
