"""What of the ack map of one shard is stored with its base: the holes, and the attempts of unfinished records."""

from collections.abc import Collection, Sequence

from shard_state.checkpoint.checkpoint import Hole
from shard_state.checkpoint.hole_map import Attempts
from shard_state.sequence_number import SequenceNumber
from shard_state.tracker.record_life import RecordState
from shard_state.tracker.restored import Restored
from shard_state.tracker.span import Span

StoredMap = tuple[tuple[Hole, ...], tuple[Attempts, ...]]


def stored_map(
    base: SequenceNumber,
    head: Span | None,
    restored: Restored | None,
    done: Collection[RecordState],
    noted: Collection[SequenceNumber],
) -> StoredMap:
    """Give the holes beyond a base and the attempts, of what was read and of what was restored behind it.

    It is called for every shard of a commit, under a lock, so its loop does no more than it must.

    Args:
        base: of the shard.
        head: the first span beyond it.
        restored: what was stored of records that reading has not passed; None: nothing.
        done: the states of spans that count as finished.
        noted: records whose first delivery, under way, counts as an attempt.
    """
    holes: list[Hole] = []
    attempts: list[Attempts] = []
    after, span, was_done = base, head, False
    while span is not None:
        last = span.last
        if span.state in done:
            if was_done:
                after = holes.pop()[0]
            holes.append((after, last))
            was_done = True
        else:
            was_done = False
            counts = span.attempts and span.count == 1
            if counts and (not _is_first_delivery(span) or span.first in noted):
                attempts.append((span.first, span.attempts))
        after, span = last, span.next
    if restored is not None:
        holes = _merged([*holes, *restored.holes])
        attempts.extend(restored.attempts.items())
    return tuple(holes), tuple(attempts)


def _is_first_delivery(span: Span) -> bool:
    return span.state is RecordState.IN_FLIGHT and span.attempts == 1


def _merged(holes: Sequence[Hole]) -> list[Hole]:
    merged: list[Hole] = []
    for after, last in holes:
        if merged and after <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((after, last))
    return merged
