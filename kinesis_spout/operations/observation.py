"""One application on one stream, looked at again and again: each part is read as often as it is worth.

ZooKeeper is read at most once a second, over one session that is kept while somebody looks; members are asked
as often. The stream's list and a record of each shard, for its lag, are read every ten seconds: a shard gives
five reads a second to all its readers together, and consumers need theirs. What is slow, or does not answer,
leaves its part unknown, or as it was, and never holds up the rest.
"""

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeVar

from kinesis_spout.model.errors import StoreError
from kinesis_spout.model.record import Record
from kinesis_spout.operations.audit import AuditEntry, read_audit
from kinesis_spout.operations.errors import NotFound
from kinesis_spout.operations.group import GroupView, group_view
from kinesis_spout.operations.letters_view import LettersView, view_letters
from kinesis_spout.operations.live_status import LiveRetry, LiveShard, LiveStatus, ask_members
from kinesis_spout.operations.refreshed import Reading, Refreshed
from kinesis_spout.operations.shards import ShardState, ShardView, describe, with_lags
from kinesis_spout.operations.world import Stream, World
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
"""What is older was read for somebody who does not look any more: a new reading is waited for."""
_UNWATCHED_SECONDS: Final = 60.0
"""After this time without a look the session with ZooKeeper ends."""
_STILL_SECONDS: Final = 30.0
"""A shard with a backlog whose checkpoint stands still for so long is told of; commits come every second or so."""
_MAX_CHARS: Final = 500
_ALARMING: Final = frozenset(
    {ShardState.UNREADABLE, ShardState.GONE, ShardState.PAUSED, ShardState.PAUSED_BY_OPERATOR}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSight:
    """A shard as it was seen last."""

    view: ShardView
    live: LiveShard | None = None
    """What its owner says of it."""
    unmoved_seconds: float = 0.0
    """How long its checkpoint has stood still while it was looked at, with a backlog."""

    @property
    def lag_millis(self) -> float | None:
        """What its owner says, or what a read at its checkpoint said."""
        if self.live is not None and self.live.lag_millis is not None:
            return self.live.lag_millis
        return self.view.lag_millis

    @property
    def oldest_unread_millis(self) -> float | None:
        """As read at its checkpoint, unless its owner has said since that there is none."""
        is_at_tip = self.live is not None and self.live.lag_millis == 0
        return None if is_at_tip else self.view.oldest_unread_millis

    @property
    def has_backlog(self) -> bool:
        """Whether records are known to lie behind its checkpoint."""
        return bool(self.lag_millis) or self.oldest_unread_millis is not None

    @property
    def attention(self) -> str | None:
        """Why an operator should look at it; None if nothing is known to be wrong."""
        view, live = self.view, self.live
        told: str | None = None
        if view.problem is not None:
            told = view.problem
        elif view.state in _ALARMING:
            told = view.pause or view.state.value
        elif live is not None and live.read_error:
            told = live.read_error
        elif live is not None and live.stalled:
            told = "it has records to deliver, and has not moved, its owner says"
        elif view.state is ShardState.READY and self.has_backlog:
            told = "it has a backlog, and no member owns it"
        elif (
            view.state is ShardState.READING
            and self.unmoved_seconds >= _STILL_SECONDS
            and (live is None or live.stalled is None)  # its owner knows better
        ):
            told = f"it has a backlog, and its checkpoint has not moved for {self.unmoved_seconds:.0f} s"
        return told and told[:_MAX_CHARS]

    @property
    def retries(self) -> int:
        """Deliveries after the first of what is unfinished, as stored."""
        attempts = () if self.view.checkpoint is None else self.view.checkpoint.attempts
        return sum(count - 1 for _, count in attempts)

    @property
    def holes(self) -> int:
        if self.live is not None and self.live.holes is not None:
            return self.live.holes
        return 0 if self.view.checkpoint is None else len(self.view.checkpoint.holes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """An application as it was seen last."""

    at: float
    """Seconds since the epoch."""
    group: GroupView
    paused: OperatorPause
    shards: Sequence[ShardSight]
    live: Mapping[str, LiveStatus] = field(default_factory=dict)
    """By member; those that name no address are not in it."""
    lags_age_seconds: float | None = None
    """How old the lags are that were read from the stream; None if there are none."""
    problems: Sequence[str] = ()
    """What could not be read."""

    def shard(self, shard_id: str) -> ShardSight:
        for each in self.shards:
            if each.view.shard_id == shard_id:
                return each
        raise NotFound(f"expected a shard that is listed or stored, got {shard_id[:200]!r}")

    @property
    def retrying(self) -> list[LiveRetry]:
        """What waits for its retry: as its owner says, or as stored of a shard whose owner says nothing."""
        said = [each for status in self.live.values() for each in status.retrying or ()]
        telling = {name for name, status in self.live.items() if status.retrying is not None}
        stored = [
            LiveRetry(shard_id=each.view.shard_id, sequence_number=str(sequence), attempts=attempts)
            for each in self.shards
            if each.view.checkpoint is not None and each.view.owner not in telling
            for sequence, attempts in each.view.checkpoint.attempts
        ]
        return said + stored


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Stored:
    """What ZooKeeper says."""

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
        self._stream: Stream | None = None
        self._looked_at = time.monotonic()
        self._moved: dict[str, tuple[SequenceNumber, float]] = {}
        """Each shard's checkpoint, and since when it is that."""
        self._sight: tuple[object, Sight] | None = None
        """What was seen last, and of which readings it was made: all who look in a second share it."""
        self._listing = Refreshed(self._list, _STREAM_SECONDS)
        self._stored = Refreshed(self._read_stored, _STORED_SECONDS)
        self._lags = Refreshed(self._read_lags, _STREAM_SECONDS)
        self._live = Refreshed(self._ask_members, _LIVE_SECONDS)
        self._letters = Refreshed(self._read_letters, _LETTERS_SECONDS)
        self._audit = Refreshed(self._read_audit, _STORED_SECONDS)

    def look(self) -> Sight:
        """How the application is now.

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
            shards=_shards(stored.views, lags.value or {}, live, self._moved),
            live=live,
            lags_age_seconds=None if lags.value is None else self._lags.age(),
            problems=list(dict.fromkeys(problems)),
        )

    def letters(self) -> LettersView:
        """The dead letters. Raises what their place raises."""
        return self._letters.ask(_STORE_PATIENCE_SECONDS).get()

    def audit(self) -> Sequence[AuditEntry]:
        """What operators changed, the newest first. Raises like ``look``."""
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

    def _reader(self) -> Stream:
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

    def _read_audit(self) -> Sequence[AuditEntry]:
        return read_audit(self._world, self.config)

    def _read_letters(self) -> LettersView:
        return view_letters(self._world, self.config)


def _shards(
    views: Iterable[ShardView],
    lags: Mapping[str, ShardView],
    live: Mapping[str, LiveStatus],
    moved: Mapping[str, tuple[SequenceNumber, float]],
) -> list[ShardSight]:
    by_shard = {shard.shard_id: shard for status in live.values() for shard in status.shards}
    now = time.monotonic()
    sights = []
    for stored in views:
        view, found = stored, lags.get(stored.shard_id)
        if found is not None and view.read_from is not None:
            view = replace(
                view,
                lag_millis=found.lag_millis,
                oldest_unread_millis=found.oldest_unread_millis,
                problem=view.problem or found.problem,
            )
        sight = ShardSight(view=view, live=by_shard.get(view.shard_id))
        if sight.has_backlog and view.shard_id in moved:
            sight = replace(sight, unmoved_seconds=now - moved[view.shard_id][1])
        sights.append(sight)
    return sights
