"""Finds a record that ends the whole process, in the door where no other process survives to report it.

A shard that was owned before can have such a record next. So some records are *noted* before they are handed
out: that delivery is stored as an attempt, and nothing else is handed out until it has ended. If the process
ends instead, the next one finds the attempt, and at the limit it gives the record up. Noted are the first,
second, fourth, eighth, ... record of such a shard, and each that was delivered before. Each note stores what
was finished so far: so a killer behind it is half as far away at the next start, until it is the first.

A note costs one commit, and each start some ten of them a shard.
"""

from collections.abc import Iterable
from typing import Final

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.plain.retained_records import Retained
from shard_state import Guarantee, LocalShardState

MOST_CAUTIOUS: Final = 1_024
"""Records of a shard handed out before it is trusted."""

ALONE_SECONDS: Final = 2.0
"""After this long a caller that asks for more, without having ended the one it has, takes several at a time: that
several are under way says nothing of one of them, so there are no more notes."""


class Caution:
    """The notes of one spout. Mutable; call it under the consumer's lock."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._handed_out: dict[str, int] = {}
        """The number of records handed out of each shard that is not trusted yet."""
        self._noted: Retained | None = None
        self._handed_out_at: float | None = None
        """When the noted record was; None: its note is not stored yet."""

    def acquired(self, shard_id: str, state: LocalShardState) -> None:
        """Start to read a shard: with caution, if it was owned before."""
        if state.epoch > 1 and self._consumer.manager.guarantee is Guarantee.AT_LEAST_ONCE:
            self._handed_out[shard_id] = 0

    def lost(self, shard_ids: Iterable[str]) -> None:
        for shard_id in shard_ids:
            self._handed_out.pop(shard_id, None)
            if self._noted is not None and self._noted.record.shard_id == shard_id:
                self._noted = None

    def holds_back(self) -> bool:
        return self._noted is not None

    def watches(self, shard_id: str) -> bool:
        """True if a record of the shard may have to be noted, or one is."""
        return self._noted is not None or shard_id in self._handed_out

    def note(self, retained: Retained) -> bool:
        """Note a fresh record that is to be handed out, if it must be; then ``take`` returns it later."""
        shard_id, attempt = retained.record.shard_id, retained.record.attempt
        before = self._handed_out.get(shard_id)
        if before is None:
            return False
        number = before + 1
        if number > MOST_CAUTIOUS:
            del self._handed_out[shard_id]
            return False
        self._handed_out[shard_id] = number
        if (attempt == 1 and number & before) or self._consumer.manager.blame.is_troubled:
            return False
        state = self._consumer.manager.shard(shard_id)
        assert state is not None, "it was read just now"
        if state.tracker.in_flight > 1 and self._consumer.config.order != "unordered":
            return (
                False  # an earlier record can fail until the note is stored, and this one would overtake it
            )
        state.note(retained.sequence)
        self._noted, self._handed_out_at = retained, None
        self._consumer.commit_soon()
        return True

    def take(self, now: float) -> Retained | None:
        """Return the noted record, once, when its note is stored; release the others when it has ended."""
        retained = self._noted
        if retained is None:
            return None
        state = self._consumer.manager.shard(retained.record.shard_id)
        if state is None or not state.is_out(retained.sequence, retained.record.attempt):
            self._noted = None
        elif self._handed_out_at is None:
            if self._is_stored(state):
                self._handed_out_at = now
                state.start_deadline(retained.sequence, now)
                return retained
        elif now >= self._handed_out_at + ALONE_SECONDS:
            state.forget_note(retained.sequence)
            if self._is_stored(state):
                self._noted = None
                self._handed_out.clear()
        return None

    def _is_stored(self, state: LocalShardState) -> bool:
        if state.is_dirty:
            self._consumer.commit_soon()
        return not state.is_dirty
