"""One application on one stream, looked at again and again: each part is read as often as it is worth.

ZooKeeper is read at most once a second, over one session of all observations; members are asked as often. The
stream's list and a record of each shard, for its lag, are read every ten seconds: a shard gives five reads a
second to all its readers together, and consumers need theirs. A part that is slow, or does not answer,
stays unknown or as it was, and never holds up the rest.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from kinesis_spout.model.record import LetterOutcome, Record
from kinesis_spout.operations.audit import AuditEntry, read_audit
from kinesis_spout.operations.dead_letters import LettersView, count_letters, view_letters
from kinesis_spout.operations.group import GroupView, group_view
from kinesis_spout.operations.shards import ShardView, describe, with_lags
from kinesis_spout.operations.watch.live_status import LiveStatus, ask_members
from kinesis_spout.operations.watch.refreshed import Reading, Refreshed
from kinesis_spout.operations.watch.shared_session import UNWATCHED_SECONDS, SharedSession
from kinesis_spout.operations.watch.sight import Sight, seen_shards
from kinesis_spout.operations.world import StreamAccess, World
from kinesis_spout.settings import SpoutConfig
from shard_state import OperatorPause, Shard

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
_GLANCE_SECONDS: Final = 20.0
"""The stream is read for a glance so much less often."""
_COUNT_SECONDS: Final = 60.0
"""The dead letters are counted so much less often than they are listed: all of them are read."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Stored:
    """The state in ZooKeeper."""

    at: float
    group: GroupView
    paused: OperatorPause
    views: Sequence[ShardView]


class Observation:
    """Mutable, thread-safe."""

    def __init__(self, world: World, config: SpoutConfig, session: SharedSession) -> None:
        self.config = config
        self._world = world
        self._session = session
        self._lock = threading.Lock()
        """Guards the reader of the stream."""
        self._stream: StreamAccess | None = None
        self._looked_at = time.monotonic()
        self._sight: tuple[object, Sight] | None = None
        """The last sight, and the readings that it was made of: all who look in a second share it."""
        self._listing = Refreshed(self._list, _STREAM_SECONDS)
        self._stored = Refreshed(self._read_stored, _STORED_SECONDS)
        self._lags = Refreshed(self._read_lags, _STREAM_SECONDS)
        self._live = Refreshed(self._ask_members, _LIVE_SECONDS)
        self._letters = {
            outcome: Refreshed(partial(view_letters, world, config, outcome), _LETTERS_SECONDS)
            for outcome in (None, LetterOutcome.DISMISSED)
        }
        self._letter_count = Refreshed(partial(count_letters, world, config), _LETTERS_SECONDS)
        self._audit = Refreshed(partial(read_audit, world, config), _STORED_SECONDS)

    def look(self) -> Sight:
        """Describe the application as it is now.

        Raises:
            NotBegun: it has not begun.
            StoreError: ZooKeeper cannot be read.
        """
        return self._look(0.0)

    def glance(self) -> Sight:
        """Do as ``look``, but read the stream less often: for one who looks at many applications at once."""
        return self._look(_GLANCE_SECONDS)

    def _look(self, spare_seconds: float) -> Sight:
        listing = self._wait(self._listing, spare_seconds)
        stored = self._look_at_store()
        lags = self._wait(self._lags, spare_seconds)
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
            shards=seen_shards(stored.views, lags.value or {}, live, stored.at),
            live=live,
            lags_age_seconds=None if lags.value is None else self._lags.age(),
            problems=list(dict.fromkeys(problems)),
        )

    def letters(self, outcome: LetterOutcome | None) -> LettersView:
        """The dead letters that are left, or the dismissed ones. Raises what their place raises."""
        return self._letters[outcome].ask(_STORE_PATIENCE_SECONDS).get()

    def letter_count(self, patience_seconds: float = 0.0) -> int | None:
        """The number of dead letters as it was read last, perhaps a minute ago; None if it is not known."""
        self._looked_at = time.monotonic()
        return self._letter_count.ask(patience_seconds, _COUNT_SECONDS).value

    def shard_count(self) -> int | None:
        """The number of shards as it was read last, perhaps some time ago; None if it is not known."""
        self._listing.ask(0.0, _GLANCE_SECONDS)
        stored = self._stored.ask(0.0, _GLANCE_SECONDS).value
        return None if stored is None else len(stored.views)

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
        for letters in self._letters.values():
            letters.expire()
        self._letter_count.expire()
        self._stored.expire()
        self._audit.expire()

    @property
    def is_watched(self) -> bool:
        return time.monotonic() - self._looked_at < UNWATCHED_SECONDS

    def _look_at_store(self) -> _Stored:
        self._looked_at = time.monotonic()
        return self._stored.ask(_STORE_PATIENCE_SECONDS).get()

    def _wait(self, part: "Refreshed[T]", spare_seconds: float) -> "Reading[T]":
        """Wait for a first reading, and where the last one is old; else take what there is."""
        return part.ask(_STREAM_PATIENCE_SECONDS if part.age() > _OLD_SECONDS else 0.0, spare_seconds)

    # Readings, each on a thread of its own

    def _list(self) -> Sequence[Shard]:
        return self._reader().lister.list_shards()

    def _reader(self) -> StreamAccess:
        stream = self._stream or self._world.stream(self.config)
        with self._lock:
            self._stream = self._stream or stream
            return self._stream

    def _read_stored(self) -> _Stored:
        return self._session.read(self.config.app, self.config.stream_name, self._stored_now)

    def _stored_now(self, progress: "StoredProgress") -> _Stored:
        progress.check_begun(self.config)
        group = group_view(progress)
        listed = self._listing.ask(0.0).value
        if listed is None:  # the stream does not answer: what is stored is all that is known of it
            stored, _, _ = progress.read_shards()
            listed = [
                Shard(shard_id=shard_id, parents=checkpoint.parents if checkpoint else ())
                for shard_id, checkpoint in stored.items()
            ]
            views = [replace(view, hash_range=None) for view in describe(listed, progress, group)]
        else:
            views = describe(listed, progress, group)
        return _Stored(
            at=self._world.time(),
            group=group,
            paused=progress.group.paused(),
            views=views,
        )

    def _read_lags(self) -> Mapping[str, ShardView]:
        views = self._look_at_store().views
        return {view.shard_id: view for view in with_lags(views, self._reader(), self._world)}

    def _ask_members(self) -> Mapping[str, LiveStatus]:
        return ask_members(self._look_at_store().group.members, self.config)
