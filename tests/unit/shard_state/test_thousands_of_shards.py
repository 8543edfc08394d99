"""Work with many shards looks at each of them a few times, not at all of them for each: counted, not timed."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from shard_state import (
    SHARD_END,
    Checkpoint,
    Position,
    SequenceNumber,
    Shard,
    StateManager,
    lineage,
)
from shard_state.owned_shards import RoundRobin

_SHARDS = 1_000


class _Looks:
    """Counts the shards that are put in order, which is what every look at all of them begins with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shards = 0
        ordered = lineage.parents_first

        def counting(shards: Iterable[Shard]) -> list[Shard]:
            given = list(shards)
            self.shards += len(given)
            return ordered(given)

        monkeypatch.setattr(lineage, "parents_first", counting)


def _manager() -> tuple[StateManager, list[str]]:
    shards = [Shard(shard_id=f"shardId-{number:012d}") for number in range(_SHARDS)]
    children = [Shard(shard_id=f"shardId-{_SHARDS:012d}", parents=(shards[0].shard_id,))]
    manager = StateManager(app_instance="one", random=lambda: 0.0)
    manager.listed([*shards, *children], {})
    return manager, [shard.shard_id for shard in shards]


def _checkpoint(*, over: bool) -> Checkpoint:
    begun = Checkpoint(start=Position.trim_horizon(), epoch=1, parents=())
    return replace(begun, base=SHARD_END) if over else begun


def test_a_thousand_shards_that_are_found_over_are_looked_at_a_few_times_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manager, shard_ids = _manager()
    looks = _Looks(monkeypatch)

    for shard_id in shard_ids:
        manager.acquired(shard_id, _checkpoint(over=True))

    assert [shard.parents for shard in manager.to_acquire()] == [(shard_ids[0],)]
    assert looks.shards < 10 * _SHARDS


def test_a_thousand_shards_that_are_acquired_committed_and_lost_are_looked_at_a_few_times_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manager, shard_ids = _manager()
    looks = _Looks(monkeypatch)

    for shard_id in shard_ids:
        manager.acquired(shard_id, _checkpoint(over=False))
        manager.end_read(shard_id)
    over = manager.committed(manager.to_commit())
    for shard_id in shard_ids:
        manager.lost([shard_id])

    assert len(over) == _SHARDS
    assert [shard.parents for shard in manager.to_acquire()] == [(shard_ids[0],)]
    assert looks.shards < 10 * _SHARDS


def test_a_commit_that_failed_is_neither_copied_nor_encoded_again_before_something_changes() -> None:
    manager, (first, *_) = _manager()
    manager.acquired(first, _checkpoint(over=False))
    for number in range(1, 6):
        manager.emit(first, SequenceNumber(number), None, 0.0)
    manager.ack(first, SequenceNumber(3), 0.0)
    [once], [again] = manager.to_commit(), manager.to_commit()

    assert once.checkpoint is again.checkpoint
    assert once.checkpoint.encode() is again.checkpoint.encode()
    manager.ack(first, SequenceNumber(5), 0.0)
    [changed] = manager.to_commit()
    assert len(changed.checkpoint.holes) == 2


class _CountedName(str):
    """A name that counts how often it is compared with another."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        _CountedName.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_to_take_a_shard_out_of_the_round_its_name_is_not_compared_with_all_that_rest() -> None:
    ring = RoundRobin()
    names = [_CountedName(f"shardId-{number:012d}") for number in range(_SHARDS)]
    for name in names:
        ring.add(name)
    for _ in names:
        ring.current(0.0)
        ring.rest(0.0)
    _CountedName.compared = 0

    for name in reversed(names):
        ring.remove(_CountedName(name))

    assert len(ring) == 0
    assert _CountedName.compared < 10 * _SHARDS
