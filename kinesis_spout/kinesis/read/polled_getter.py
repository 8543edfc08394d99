"""One shard, read forward with GetRecords.

The position in the shard is the last record *fetched*; an iterator only continues it for a short time. So an
iterator that expires, is refused, or belonged to an ended process costs one call and loses nothing: a new one
is requested after the last fetched record, or, if nothing was fetched yet, at the pinned start.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from kinesis_spout.kinesis.calls import expected, stream_arguments, translated
from kinesis_spout.kinesis.io_thread import IO
from kinesis_spout.kinesis.pace import Pacing, ReadPace
from kinesis_spout.kinesis.read.continuity import Continuity
from kinesis_spout.kinesis.read.page import check_iterator
from kinesis_spout.kinesis.read.read_settings import DEFAULT, ReadSettings
from kinesis_spout.kinesis.read.reply_getter import (
    Reply,
    ReplyForm,
    ReplyGetter,
    get_records,
)
from kinesis_spout.kinesis.read.user_records import HashKeys
from kinesis_spout.kinesis.retry_policy import ITERATOR_REFUSED, Action, Jitter, reaction_to
from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.errors import DataLoss, KinesisError, Unavailable
from kinesis_spout.ports import ShardLister
from shard_state import Position

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

RENEW_AFTER_SECONDS: Final = 270.0
"""An iterator lives 300 s. It is renewed before, so that no call fails on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """The iterator, pace and rest to read on with in a shard. Can be pickled."""

    iterator: str | None = None
    """The iterator of the next read; None if one must be requested."""
    iterator_obtained_at: float = 0.0
    """Seconds since the epoch."""
    wait_seconds: float = 0.0
    """The shard's limits allow no read for so long. A duration: the clocks of two machines can be hours apart."""
    pace: ReadPace | None = None
    """The shard's read limits; None: as the settings say."""
    throttled_to: float = 1.0
    """The part of the pace that throttles have left; see ``Pacing``."""
    is_unproven: bool = False
    """True if records can be missing before what the iterator reads first; see ``Continuity``."""


FRESH: Final = Cursor()
"""The cursor of a shard of which nothing was read."""


class PollingShardGetter(ReplyGetter):
    """A ``ShardGetter`` over GetRecords. Mutable, not thread-safe, needs no closing.

    Its position can move to another process: give ``position`` and ``cursor`` of the old one to the new one.

    Args:
        position: where to begin. LATEST is pinned here and now to the clock's time (invariant 9).
        hash_keys: the shard's, from ``HashKeys.to_check``; None: user records outside of it are not counted.
        pacing: of the shard, if shared with others that read it; None: a new one.
        cursor: of the getter that came to ``position``.
    """

    def __init__(
        self,
        client: "KinesisClient",
        *,
        stream: str,
        shard_id: str,
        position: Position,
        lister: ShardLister,
        settings: ReadSettings = DEFAULT,
        hash_keys: HashKeys | None = None,
        pacing: Pacing | None = None,
        cursor: Cursor = FRESH,
        clock: Clock | None = None,
        jitter: Jitter = random.random,
    ) -> None:
        clock = clock or SystemClock()
        ready_at = clock.monotonic() + cursor.wait_seconds
        pacing = pacing or Pacing(
            ready_at=ready_at,
            jitter=jitter,
            pace=cursor.pace or settings.pace,
            throttled_to=cursor.throttled_to,
        )
        pacing.ready_at = max(pacing.ready_at, ready_at)
        super().__init__(
            stream=stream,
            shard_id=shard_id,
            position=position,
            lister=lister,
            settings=settings,
            hash_keys=hash_keys,
            pacing=pacing,
            clock=clock,
        )
        self._client = client
        self.go_on(cursor)
        self._read_with = FRESH
        """The iterator of the last read."""

    @property
    def cursor(self) -> Cursor:
        """For another process to read on from ``position``."""
        return Cursor(
            iterator=self._iterator,
            iterator_obtained_at=self._iterator_obtained_at,
            wait_seconds=max(0.0, self._pacing.ready_at - self._clock.monotonic()),
            throttled_to=self._pacing.throttled_to,
            is_unproven=self._continuity.is_unproven,
        )

    @property
    def cursor_before(self) -> Cursor:
        """For another process to repeat the last read, from the ``position`` before it. Only with the iterator."""
        return self._read_with

    def go_on(self, cursor: Cursor) -> None:
        """Read on with the iterator of a getter that came to this ``position``; before the first read."""
        self._iterator, self._iterator_obtained_at = cursor.iterator, cursor.iterator_obtained_at
        self._continuity = Continuity(self.position, is_unproven=cursor.is_unproven)

    def when_ready(self, call: Callable[[], None]) -> None:
        """Do nothing: only a read finds out; see the port."""

    def close(self) -> None:
        """Do nothing: iterators expire; see the port."""

    async def _ask(self, limit: int, form: ReplyForm[Reply]) -> Reply:
        try:
            iterator = await self._current_iterator()
            reply = await self._get_records(iterator, limit, form)
        except ITERATOR_REFUSED:
            reply = await self._read_with_fresh_iterator(limit, form)
        self._read_with = Cursor(
            iterator=self._iterator,
            iterator_obtained_at=self._iterator_obtained_at,
            is_unproven=self._continuity.is_unproven,
        )
        self._iterator = reply.next_shard_iterator
        has_come_further = reply.last not in (None, self._position.sequence_number)
        if has_come_further and self._continuity.is_near_horizon((reply.millis_behind_latest or 0) / 1000):
            self._iterator = None  # so that the next page shows whether retention has overtaken it
        self._iterator_obtained_at = self._clock.time()
        return reply

    def _begin_anew(self) -> None:
        self._iterator = None

    _begin_at_oldest = _begin_anew

    async def _drop_connections(self) -> None:
        drop_connections = getattr(self._client.get_records, "drop_connections", None)
        if drop_connections is not None:
            await drop_connections()

    async def _read_with_fresh_iterator(self, limit: int, form: ReplyForm[Reply]) -> Reply:
        self._iterator = None
        try:
            iterator = await self._current_iterator()
            return await self._get_records(iterator, limit, form)
        except ITERATOR_REFUSED as refused:
            self._iterator = None
            failure = Unavailable(f"GetRecords of {self._question} refused a fresh iterator: {refused}")
            self._pacing.failed(self._clock.monotonic(), failure)
            raise failure from refused

    async def _current_iterator(self) -> str:
        age = self._clock.time() - self._iterator_obtained_at
        if self._iterator is None or not 0 <= age <= RENEW_AFTER_SECONDS:
            self._keep_from(self._position)
            try:
                self._iterator = await self._ask_iterator(self._position)
            except DataLoss as error:
                self._give_up_position(error)
                self._iterator = await self._ask_iterator(self._position)
            self._iterator_obtained_at = self._clock.time()
        return self._iterator

    async def _ask_iterator(self, start: Position) -> str:
        position = self._continuity.begins(start)
        arguments: dict[str, Any] = {
            **stream_arguments(self._stream),
            "ShardId": self._shard_id,
            "ShardIteratorType": position.type.value,
        }
        if position.sequence_number is not None:
            arguments["StartingSequenceNumber"] = position.sequence_number.kinesis
        if position.timestamp is not None:
            # Arrivals are whole milliseconds: a finer start would skip what arrived in the same millisecond.
            arguments["Timestamp"] = math.floor(position.timestamp * 1000) / 1000
        call = f"GetShardIterator of {self._question} at {position}"
        try:
            with translated(call):
                reply: Any = await IO.in_thread(partial(self._client.get_shard_iterator, **arguments))
                iterator = expected(reply, "ShardIterator", call, str)
                check_iterator(iterator)
        except DataLoss as error:
            refused = self._question.position_refused(start, error)
            if reaction_to(refused).action is Action.RETRY:
                self._pacing.failed(self._clock.monotonic(), refused)
            raise refused from error
        except KinesisError as error:
            await self._raise(error)
        return iterator

    async def _get_records(self, iterator: str, limit: int, form: ReplyForm[Reply]) -> Reply:
        clock, pacing, limit = self._clock, self._pacing, self._continuity.limit(limit)
        while (started := pacing.take_turn(now := clock.monotonic())) > now:
            await clock.pause(started - now)
        self._seen_at = clock.time()
        try:
            reply: Reply = await get_records(
                self._client, iterator, limit, form, stream=self._stream, shard_id=self._shard_id
            )
        except ITERATOR_REFUSED:
            raise
        except KinesisError as error:
            await self._raise(error)
        pacing.succeeded(started, reply.size_bytes)
        return reply

    async def _raise(self, error: KinesisError) -> NoReturn:
        verified = await self._verified(error)
        self._note(verified)
        if verified is error:
            raise error
        raise verified from error
