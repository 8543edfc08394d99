"""Keeps the companion and the progress of the consumer at the same moment.

All shards of the application, or none: the companion's content reflects the records of all of them. When a
shard is lost, that content holds what its records did since the last commit, and the next owner does it once
more. So the consumer gives up every shard and forgets the content. If all were lost at once (with the
session), it acquires them again and loads what is stored. If only some were, another consumer has them, and
the two would keep undoing each other's work: so this one ends.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from kinesis_spout.consumer.consumer_state import ConsumerState
from kinesis_spout.consumer.ports import Companion
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.model.logs import of_stream
from kinesis_spout.ports import Attachment


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    members: frozenset[str]
    until: float


class Companionship:
    """Does nothing without a companion. Mutable; guarded by the consumer's lock, which ``load`` takes."""

    def __init__(self, state: ConsumerState, companion: Companion | None) -> None:
        self._state = state
        self._manager = state.manager
        self._companion = companion
        self.exists: Final = companion is not None
        """With a companion, the progress of all shards is that of one moment."""
        self.is_loaded = companion is None
        self._shared: _Shared | None = None

    def load(self) -> None:
        """Load once. Not under the lock: it asks the store. Raises StoreUnavailable, KinesisSpoutError."""
        if self._companion is None or self.is_loaded:
            return
        stored = self._state.ports.store.attached(self._companion.name)
        with self._state.lock:
            self._companion.load(stored)
            self.is_loaded = True

    def attachment(self) -> Attachment | None:
        if self._companion is None or not self.is_loaded or not self._manager.owned:
            return None
        data = self._companion.attachment()
        return None if data is None else Attachment(name=self._companion.name, data=data)

    def committed(self, attachment: Attachment) -> None:
        if self._companion is not None:
            self._companion.committed(attachment.data)

    def lose(self, shard_ids: Collection[str]) -> frozenset[str]:
        """Return the shards to drop when these are lost: these, or all."""
        if self._companion is None:
            return frozenset(shard_ids)
        self._companion.lost()
        self.is_loaded = False
        return self._manager.owned | frozenset(shard_ids)

    def may_hand_over(self, leaving: Collection[str]) -> bool:
        """With a companion, shards that were left are given up only all at once."""
        return self._companion is None or self._manager.owned <= {*leaving}

    def is_alone(self, now: float) -> bool:
        """With a companion: whether no other member has shards assigned.

        Raises:
            InvalidConfig: others have had shards for longer than they need to end.
        """
        sharing, config = self._state.sharing, self._state.config
        others = sharing.others if self._companion is not None and sharing.ours else frozenset[str]()
        if not others:
            self._shared = None
        elif self._shared is None or self._shared.members != others:
            # A consumer that owns nothing waits this long for others to end.
            patience = config.hand_over_timeout_seconds + config.session_timeout_seconds
            until = now if self._manager.owned else now + patience
            self._shared = _Shared(members=others, until=until)
        if self._shared is not None and now >= self._shared.until:
            raise self._error(f"shards are assigned to {', '.join(sorted(others))}, too")
        return not others

    def parted(self, gone: Collection[str]) -> InvalidConfig | None:
        if self._companion is None or not gone or self._manager.owned <= {*gone}:
            return None
        return self._error(
            f"another consumer of this application took {of_stream(gone, self._state.config.stream_name)}"
        )

    def _error(self, what: str) -> InvalidConfig:
        assert self._companion is not None, "nothing parts without one"
        return InvalidConfig(
            f"{what}: keyed state ({self._companion.name}) is exact only while one consumer has all shards. What "
            "is stored is right, and another consumer goes on from it. Start every consumer but one with "
            'mode="standby": it takes over when that one ends'
        )
