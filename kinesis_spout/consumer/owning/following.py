"""Acquires the shards that ``sharing`` wishes for, and gives up those assigned to another member."""

import logging
from collections.abc import Callable, Iterable

from kinesis_spout.consumer.consumer_state import ConsumerState
from kinesis_spout.consumer.owning.companion import Companionship
from kinesis_spout.consumer.sharing import Wish
from kinesis_spout.model.logs import of_stream
from shard_state import Position

_log = logging.getLogger(__name__)


class Following:
    """Mutable; every method but ``lose`` takes the consumer's lock."""

    def __init__(self, state: ConsumerState, companionship: Companionship) -> None:
        self._state = state
        self._ports = state.ports
        self._lock = state.lock
        self._manager = state.manager
        self._sharing = state.sharing
        self._companionship = companionship
        self._stream = state.config.stream_name

    # Taking

    def follow(self, now: float) -> None:
        pause = self._ports.group.paused()
        with self._lock:
            if self._manager.pause_by_operator(pause) and self._state.listener is not None:
                self._state.listener.resumed()
        self._state.log.paused_by_operator(pause, bounded=self._manager.bounds is not None)
        assignment, freed = self._ports.group.assignment(), self._ports.coordinator.take_freed()
        if assignment is None:
            self._ports.store.check_begun()
        sharing = self._sharing
        with self._lock:
            sharing.take_in(assignment, now)
            self._ports.paces.assigned(sharing.ours, sharing.shards)
            if self._state.deliveries.is_limited:
                self._state.deliveries.assigned(self._state, len(sharing.ours), sharing.shards, now)
            alone = self._companionship.is_alone(now)
            wishes = sharing.wishes(now, freed) if alone else []
            is_placed, ours, leaving = sharing.is_placed, sharing.ours, set(sharing.leaving)
        if is_placed:
            self._state.log.follows(ours, leaving)
        acquired: list[tuple[str, Position]] = []
        for wish in wishes:
            if not self._acquire(wish, acquired):
                return  # the session was lost again meanwhile
        with self._lock:
            missing = sharing.missing
        self._state.log.acquired(acquired, missing)

    def _acquire(self, wish: Wish, acquired: list[tuple[str, Position]]) -> bool:
        """Try to own a shard and append it to ``acquired``; False if this session has ended."""
        shard_id, fresh, fences = wish
        checkpoint = self._ports.coordinator.acquire(shard_id, fresh, fences=fences)
        if checkpoint is None:
            return True
        self.take_lost()  # of a session before the one that has acquired this
        self._companionship.load()
        with self._lock:
            if not self._companionship.is_loaded:
                return False
            self._manager.acquired(shard_id, checkpoint)
            state = self._manager.shard(shard_id)
            if state is None:
                # Its last owner finished it and ended before it could report that.
                self._sharing.ended([shard_id])
            else:
                acquired.append((shard_id, state.position))
                if self._state.listener is not None:
                    self._state.listener.shards_acquired([shard_id])
        if state is None:
            self._ports.coordinator.release([shard_id])
        return True

    # Letting go

    def take_lost(self) -> None:
        """Drop the shards that ZooKeeper has reported as lost since the last call."""
        with self._lock:  # no shard is acquired between the loss of others and its consequences
            lost = self._ports.coordinator.take_lost()
            given_up = self.lose(lost) if lost else lost
        if lost:
            _log.warning("ownership lost of %s", of_stream(lost, self._stream))
        if given_up:
            self._ports.coordinator.release(given_up)

    def lose(self, lost: frozenset[str]) -> frozenset[str]:
        """Drop shards that were taken from us; return which others must be released, too."""
        if (error := self._companionship.parted(lost)) is not None:
            self._state.end_with(error)
        dropped = self._companionship.lose(lost)
        self._drop(dropped)
        return dropped - lost

    def _drop(self, shard_ids: Iterable[str]) -> None:
        dropped = set(shard_ids)
        with self._lock:
            self._manager.lost(dropped)
            self._state.letters.drop_shards(dropped)
            self._state.read_errors.drop(dropped)
            self._sharing.dropped(dropped)
            if self._state.listener is not None:
                self._state.listener.shards_lost(dropped)

    def hand_over(self, now: float, commit: Callable[[], None]) -> None:
        """``commit``, then give up shards of others of which nothing is in flight, or whose time is over."""
        with self._lock:
            leaving = self._sharing.left(now)
            if not self._companionship.may_hand_over(leaving):
                return
            self._manager.end_claims(leaving)
        if not leaving:
            return
        commit()
        with self._lock:
            leaving = sorted(self._manager.owned.intersection(leaving))
            open_records = sum(self._manager.unresolved_of(shard_id) for shard_id in leaving)
            self._companionship.lose(leaving)
            self._drop(leaving)
        self._ports.coordinator.release(leaving)
        self._state.log.handed_over(leaving, open_records)
