"""What of the ack map of one shard is stored with its base: the holes, and the attempts of unfinished records."""

from collections.abc import Callable, Iterable, Sequence

from shard_state.checkpoint.checkpoint import Hole
from shard_state.checkpoint.hole_map import Attempts
from shard_state.sequence_number import SequenceNumber
from shard_state.tracker.record_life import RecordState
from shard_state.tracker.restored import Restored
from shard_state.tracker.span import Span

StoredMap = tuple[tuple[Hole, ...], tuple[Attempts, ...]]


def stored_map(
    base: SequenceNumber, spans: Iterable[Span], restored: Restored | None, is_done: Callable[[Span], bool]
) -> StoredMap:
    """Give the holes beyond a base and the attempts, of what was read and of what was restored behind it.

    Args:
        base: of the shard.
        spans: those beyond it, in order.
        restored: what was stored of records that reading has not passed; None: nothing.
        is_done: tells whether a span counts as finished.
    """
    holes: list[Hole] = []
    attempts: list[Attempts] = []
    after = base
    for span in spans:
        if is_done(span):
            holes.append((after, span.last))
        elif span.attempts and span.count == 1 and not _is_first_delivery(span):
            attempts.append((span.first, span.attempts))
        after = span.last
    if restored is not None:
        holes.extend(restored.holes)
        attempts.extend(restored.attempts.items())
    return _merged(holes), tuple(attempts)


def _is_first_delivery(span: Span) -> bool:
    return span.state is RecordState.IN_FLIGHT and span.attempts == 1


def _merged(holes: Sequence[Hole]) -> tuple[Hole, ...]:
    merged: list[Hole] = []
    for after, last in holes:
        if merged and after <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((after, last))
    return tuple(merged)
