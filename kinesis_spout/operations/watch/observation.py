"""One application on one stream, looked at again and again: each part is read as often as it is worth.

ZooKeeper is read at most once a second, over one session that is kept while somebody looks; members are asked
as often. The stream's list and a record of each shard, for its lag, are read every ten seconds: a shard gives
five reads a second to all its readers together, and consumers need theirs. A part that is slow, or does not
answer, stays unknown or as it was, and never holds up the rest.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from kinesis_spout.model.errors import StoreError
from kinesis_spout.model.record import Record
from kinesis_spout.operations.audit import AuditEntry, read_audit
from kinesis_spout.operations.dead_letters import LettersView, view_letters
from kinesis_spout.operations.group import GroupView, group_view
from kinesis_spout.operations.shards import ShardView, describe, with_lags
from kinesis_spout.operations.watch.live_status import LiveStatus, ask_members
from kinesis_spout.operations.watch.refreshed import Reading, Refreshed
from kinesis_spout.operations.watch.sight import Sight, seen_shards
from kinesis_spout.operations.world import StreamAccess, World
from kinesis_spout.settings import SpoutConfig
from shard_state import OperatorPause, SequenceNumber, Shard

if TYPE_CHECKING:
    from kinesis_spout.operations.stored_progress import StoredProgress

T = TypeVar("T")

_STORED_SECONDS: Final = 1.0
_LIVE_SECONDS: Final = 1.0
_STREAM_SECONDS: Final = 10.0
_LETTERS_SECONDS: Final = 3.0
_STORE_PATIENCE_SECONDS: Final = 30.0
_STREAM_PATIENCE_SECONDS: Final = 2.0
_LIVE_PATIENCE_SECONDS: Final = 1.5
_OLD_SECONDS: Final = 30.0
"""An older reading was made for somebody who has left: a new one is waited for."""
_UNWATCHED_SECONDS: Final = 60.0
"""After this time without a look the session with ZooKeeper ends."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Stored:
    """The state in ZooKeeper."""

    at: float
    group: GroupView
    paused: OperatorPause
    views: Sequence[ShardView]


class Observation:
    """Mutable, thread-safe. ``close`` it when nobody looks any more; a look afterwards begins again."""

    def __init__(self, world: World, config: SpoutConfig) -> None:
        self.config = config
        self._world = world
        self._lock = threading.Lock()
        """Guards the session with ZooKeeper and the reader of the stream."""
        self._opened = ExitStack()
        self._progress: StoredProgress | None = None
        self._stream: StreamAccess | None = None
        self._looked_at = time.monotonic()
        self._moved: dict[str, tuple[SequenceNumber, float]] = {}
        """Each shard's checkpoint, and since when it is that."""
        self._sight: tuple[object, Sight] | None = None
        """The last sight, and the readings that it was made of: all who look in a second share it."""
        self._listing = Refreshed(self._list, _STREAM_SECONDS)
        self._stored = Refreshed(self._read_stored, _STORED_SECONDS)
        self._lags = Refreshed(self._read_lags, _STREAM_SECONDS)
        self._live = Refreshed(self._ask_members, _LIVE_SECONDS)
        self._letters = Refreshed(partial(view_letters, world, config), _LETTERS_SECONDS)
        self._audit = Refreshed(partial(read_audit, world, config), _STORED_SECONDS)

    def look(self) -> Sight:
        """Describe the application as it is now.

        Raises:
            NotBegun: it has not begun.
            StoreError: ZooKeeper cannot be read.
        """
        listing = self._wait(self._listing, _STREAM_PATIENCE_SECONDS)
        stored = self._look_at_store()
        lags = self._wait(self._lags, _STREAM_PATIENCE_SECONDS)
        live = self._live.ask(_LIVE_PATIENCE_SECONDS)
        last = self._sight
        if last is None or last[0] != (stored, lags, live, listing.error):
            sight = self._seen(stored, lags, live.value or {}, listing.error)
            last = self._sight = (stored, lags, live, listing.error), sight
        return last[1]

    def _seen(
        self,
        stored: _Stored,
        lags: Reading[Mapping[str, ShardView]],
        live: Mapping[str, LiveStatus],
        listing_error: Exception | None,
    ) -> Sight:
        problems = [str(error) for error in (listing_error, lags.error) if error is not None]
        problems += [f"{name}: {status.problem}" for name, status in live.items() if status.problem]
        return Sight(
            at=stored.at,
            group=stored.group,
            paused=stored.paused,
            shards=seen_shards(stored.views, lags.value or {}, live, self._moved),
            live=live,
            lags_age_seconds=None if lags.value is None else self._lags.age(),
            problems=list(dict.fromkeys(problems)),
        )

    def letters(self) -> LettersView:
        """The dead letters. Raises what their place raises."""
        return self._letters.ask(_STORE_PATIENCE_SECONDS).get()

    def audit(self) -> Sequence[AuditEntry]:
        """Return the operators' changes, the newest first. Raises like ``look``."""
        return list(reversed(self._audit.ask(_STORE_PATIENCE_SECONDS).get()))

    def next_records(self, shard_id: str, count: int) -> Sequence[Record]:
        """The records after a shard's checkpoint, finished or not. Raises what Kinesis raises."""
        position = self.look().shard(shard_id).view.read_from
        if position is None:
            return ()
        with closing(self._reader().open_getter(shard_id, position)) as getter:
            return getter.read(count).records[:count]

    def changed(self) -> None:
        """Something was changed: the next look reads it."""
        self._stored.expire()
        self._letters.expire()
        self._audit.expire()

    def close_unwatched(self) -> bool:
        """End the session with ZooKeeper if nobody has looked for a while; say whether none is left."""
        if time.monotonic() - self._looked_at >= _UNWATCHED_SECONDS:
            self.close()
        return self._progress is None

    def close(self) -> None:
        """End the session with ZooKeeper; a reading that is under way fails."""
        with self._lock:
            opened, self._opened, self._progress = self._opened, ExitStack(), None
        opened.close()

    def _look_at_store(self) -> _Stored:
        self._looked_at = time.monotonic()
        return self._stored.ask(_STORE_PATIENCE_SECONDS).get()

    def _wait(self, part: "Refreshed[T]", patience: float) -> "Reading[T]":
        """Wait for a first reading, and where the last one is old; else take what there is."""
        return part.ask(patience if part.age() > _OLD_SECONDS else 0.0)

    # Readings, each on a thread of its own

    def _list(self) -> Sequence[Shard]:
        return self._reader().lister.list_shards()

    def _reader(self) -> StreamAccess:
        stream = self._stream or self._world.stream(self.config)
        with self._lock:
            self._stream = self._stream or stream
            return self._stream

    def _session(self) -> "StoredProgress":
        """The session with ZooKeeper; only one reading at a time asks for it."""
        open_one = self._progress  # another thread may close it
        if open_one is not None:
            return open_one
        opened = ExitStack()
        progress = opened.enter_context(self._world.progress(self.config))
        with self._lock:
            self._opened, self._progress = opened, progress
        return progress

    def _read_stored(self) -> _Stored:
        try:
            return self._stored_now(self._session())
        except StoreError:
            self.close()
            raise

    def _stored_now(self, progress: "StoredProgress") -> _Stored:
        progress.check_begun(self.config)
        group = group_view(progress)
        listed = self._listing.ask(0.0).value
        if listed is None:  # the stream does not answer: what is stored is all that is known of it
            stored, _ = progress.read_shards()
            listed = [
                Shard(shard_id=shard_id, parents=(checkpoint and checkpoint.parents) or ())
                for shard_id, checkpoint in stored.items()
            ]
            views = [replace(view, hash_range=None) for view in describe(listed, progress, group)]
        else:
            views = describe(listed, progress, group)
        self._note_moves(views)
        return _Stored(
            at=self._world.time(),
            group=group,
            paused=progress.group.paused(),
            views=views,
        )

    def _note_moves(self, views: Sequence[ShardView]) -> None:
        now, before = time.monotonic(), self._moved
        self._moved = {
            view.shard_id: before[view.shard_id]
            if view.shard_id in before and before[view.shard_id][0] == view.checkpoint.base
            else (view.checkpoint.base, now)
            for view in views
            if view.checkpoint is not None
        }

    def _read_lags(self) -> Mapping[str, ShardView]:
        views = self._look_at_store().views
        return {view.shard_id: view for view in with_lags(views, self._reader(), self._world)}

    def _ask_members(self) -> Mapping[str, LiveStatus]:
        return ask_members(self._look_at_store().group.members, self.config)
