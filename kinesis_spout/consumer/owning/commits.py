"""Stores the progress of the owned shards, and their attachment, one transaction at a time."""

import logging
from collections.abc import Callable
from typing import Final

from kinesis_spout.consumer.consumer_state import ConsumerState
from kinesis_spout.consumer.owning.companion import Companionship
from kinesis_spout.consumer.owning.following import Following
from kinesis_spout.model.logs import of_stream
from kinesis_spout.ports import Attachment, CheckpointWrite, CommitResult
from shard_state import PendingCommit

_COPIED_AT_ONCE: Final = 16
"""Shards. Each takes up to a millisecond if it has thousands of holes."""
_LET_GO_SECONDS: Final = 1e-4

_log = logging.getLogger(__name__)


class Commits:
    """Mutable. ``ended`` is called when shards are over, so that their children are looked for."""

    def __init__(
        self,
        state: ConsumerState,
        following: Following,
        companionship: Companionship,
        *,
        ended: Callable[[], None],
    ) -> None:
        self._state = state
        self._ports = state.ports
        self._lock = state.lock
        self._manager = state.manager
        self._following = following
        self._companionship = companionship
        self._ended = ended
        self.finished = 0
        """Finished records at the last commit."""

    def commit(self) -> None:
        """Store changes; drop shards that another member owns now. Raises like ``CheckpointStore.commit``."""
        with self._lock:
            finished = self._state.counters.finished
        pending, attachment = self._copies()
        began = self._ports.clock.monotonic()
        is_changed = bool(pending) or attachment is not None
        if is_changed:
            writes = [
                CheckpointWrite(shard_id=commit.shard_id, checkpoint=commit.checkpoint) for commit in pending
            ]
            result = self._ports.store.commit(writes, attachment)
            stored = attachment if result.attached else None
            self._committed([commit for commit in pending if commit.shard_id in result.committed], stored)
            if result.fenced or stored is not attachment:
                self._refused(result, attachment)
        with self._lock:
            if is_changed:
                self._state.figures.commits.add(self._ports.clock.monotonic() - began)
            self.finished, self._state.figures.committed_at = finished, began

    def _copies(self) -> tuple[list[PendingCommit], Attachment | None]:
        """With a companion all shards at once, without one some at a time."""
        if self._companionship.exists:
            with self._lock:
                return self._manager.to_commit(), self._companionship.attachment()
        with self._lock:
            dirty = self._manager.dirty()
        pending: list[PendingCommit] = []
        for first in range(0, len(dirty), _COPIED_AT_ONCE):
            if first:
                self._ports.clock.sleep(_LET_GO_SECONDS)  # lets other threads have the lock
            with self._lock:
                pending += self._manager.to_commit(dirty[first : first + _COPIED_AT_ONCE])
        return pending, None

    def _refused(self, result: CommitResult, attachment: Attachment | None) -> None:
        """With an attachment, ``result`` can name fewer shards than were fenced, or none."""
        with self._lock:
            lost = self._ports.coordinator.take_lost()
            given_up = self._following.lose(lost if attachment is not None else lost | result.fenced)
        name = "the state" if attachment is None else attachment.name
        what = of_stream(result.fenced, self._state.config.stream_name) if result.fenced else name
        _log.warning("fenced: somebody else owns %s now", what)
        self._ports.coordinator.release(result.fenced | given_up)

    def _committed(self, pending: list[PendingCommit], attachment: Attachment | None) -> None:
        with self._lock:
            if attachment is not None:
                self._companionship.committed(attachment)
            over = self._manager.committed(pending)
            self._state.counters.commits += 1
            counters = self._state.counted()
            if over:
                self._state.sharing.ended(over)
                if self._state.listener is not None:
                    self._state.listener.shards_lost(over)
        self._state.log.committed(pending, counters, self._ports.clock.monotonic())
        if over:
            self._state.log.finished(over)
            self._ports.coordinator.release(over)
            self._ended()
