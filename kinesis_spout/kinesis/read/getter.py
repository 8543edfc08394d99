"""One shard, read forward with GetRecords.

The position in the shard is the last record *fetched*; an iterator is only a short-lived ticket to it. So an
iterator that expires, is refused, or belongs to a process that ended costs one call and loses nothing: a new
one is asked for after the last fetched record, or, if nothing was fetched yet, at the pinned start.

Whatever was asked for, no record from before the start is given: a position that was given up for the oldest
record there is may turn out not to have been trimmed, and what is before it was handled.
"""

import math
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from kinesis_spout.kinesis.errors import ResourceNotFound, expected, translated
from kinesis_spout.kinesis.naming import stream_arguments
from kinesis_spout.kinesis.pace import Pace
from kinesis_spout.kinesis.patience import ITERATOR_REFUSED, Action, Jitter, reaction_to
from kinesis_spout.kinesis.read.arrow import ArrowForm, ArrowPage, ArrowReply
from kinesis_spout.kinesis.read.calls.get_records import (
    FetchArrow,
    RecordsForm,
    Reply,
    ReplyForm,
    call_get_records,
)
from kinesis_spout.kinesis.read.pacing import Pacing
from kinesis_spout.kinesis.read.page import GetRecordsReply, page_of
from kinesis_spout.kinesis.read.user_records import HashKeys, with_user_records
from kinesis_spout.kinesis.verdict import ShardInQuestion, give_up_position, start_to_keep
from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.errors import DataLoss, KinesisError, Unavailable
from kinesis_spout.ports import Page, ShardLister
from shard_state import Position

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

MAX_RECORDS: Final = 10_000
"""AWS: the most that one GetRecords gives."""

RENEW_AFTER_SECONDS: Final = 270.0
"""An iterator lives 300 s. Renewed before, no call is wasted on finding out."""


def check_limit(limit: int) -> None:
    """Refuse a limit that no read takes.

    Raises:
        ValueError: it is not of 1 to ``MAX_RECORDS``.
    """
    if not 1 <= limit <= MAX_RECORDS:
        raise ValueError(f"expected a limit of 1 to {MAX_RECORDS} records, got {limit}")


class PollingShardGetter:
    """A ``ShardGetter`` over the Kinesis API. Mutable, not thread-safe, owns nothing that needs closing.

    Its position can move to another process: give ``position``, ``iterator``, ``iterator_obtained_at`` and
    ``not_before`` of the old one to the constructor of the new one.

    Args:
        client: from ``KinesisClientSettings.connect``.
        stream: the stream's name, or its ARN. Records carry it as it is given.
        shard_id: the shard.
        position: where to begin. LATEST is pinned here and now to the clock's time (invariant 9).
        lister: asked when Kinesis says that something does not exist.
        fail_on_data_loss: whether a position that cannot be read from is an error, or is given up, loudly,
            for the oldest record there is.
        iterator: one that leads to ``position``, obtained before.
        iterator_obtained_at: when it was, in seconds since the epoch.
        not_before: the earliest next read, in seconds since the epoch.
        pacing: of the shard, where others read it too, or with a rate of its own; None: what AWS allows.
        pace: without ``pacing``, the rate; None: what AWS allows.
        throttled_to: without ``pacing``, the part of it that throttles have left; see ``Pacing``.
        extra_columns: what ``read_arrow`` adds, of ``kinesis.arrow.EXTRA_COLUMNS``.
        fetch_arrow: makes the calls of ``read_arrow``; None: the client does, here.
        deaggregate: whether aggregated records are taken apart.
        hash_keys: the shard's, from ``HashKeys.to_check``; None: user records outside of it are not counted.
        clock: what the pacing waits on.
        jitter: see ``backoff_seconds``.
    """

    def __init__(
        self,
        client: "KinesisClient",
        *,
        stream: str,
        shard_id: str,
        position: Position,
        lister: ShardLister,
        fail_on_data_loss: bool = True,
        iterator: str | None = None,
        iterator_obtained_at: float = 0.0,
        not_before: float = 0.0,
        pacing: Pacing | None = None,
        pace: Pace | None = None,
        throttled_to: float = 1.0,
        extra_columns: Sequence[str] = (),
        fetch_arrow: FetchArrow | None = None,
        deaggregate: bool = True,
        hash_keys: HashKeys | None = None,
        clock: Clock | None = None,
        jitter: Jitter = random.random,
    ) -> None:
        self._client = client
        self._stream = stream
        self._shard_id = shard_id
        self._clock = clock or SystemClock()
        self._position = position.resolved(self._clock.time())
        self._question = ShardInQuestion(stream=stream, shard_id=shard_id, lister=lister, clock=self._clock)
        self._fail_on_data_loss = fail_on_data_loss
        self._arrow = ArrowForm(
            stream=stream,
            shard_id=shard_id,
            extra_columns=tuple(extra_columns),
            deaggregate=deaggregate,
            hash_keys=hash_keys,
        )
        self._fetch_arrow = fetch_arrow
        self._iterator = iterator
        self._iterator_obtained_at = iterator_obtained_at
        self._start = start_to_keep(self._position)
        """No record before it is given; None once nothing before it can come any more."""
        self._deaggregate = deaggregate
        self._hash_keys = hash_keys
        self._last: GetRecordsReply | None = None
        wait = max(0.0, not_before - self._clock.time())
        ready_at = self._clock.monotonic() + wait
        self._pacing = pacing or Pacing(
            ready_at=ready_at, jitter=jitter, pace=pace, throttled_to=throttled_to
        )
        self._pacing.ready_at = max(self._pacing.ready_at, ready_at)
        self.data_losses = 0
        """How often a position was given up (``fail_on_data_loss`` is off)."""
        self.throttles = 0

    @property
    def position(self) -> Position:
        """From where the next page comes."""
        return self._position

    @property
    def ready_at(self) -> float:
        """The clock's monotonic time before which a read would exceed the shard's limits."""
        return self._pacing.ready_at

    @property
    def not_before(self) -> float:
        """``ready_at`` in seconds since the epoch, to be passed on to another process."""
        return self._clock.time() + self._pacing.ready_at - self._clock.monotonic()

    @property
    def throttled_to(self) -> float:
        """The part of its pace that throttles have left, to be passed on to another process."""
        return self._pacing.throttled_to

    @property
    def iterator(self) -> str | None:
        """The iterator of the next read, to be passed on; None if one must be asked for."""
        return self._iterator

    @property
    def iterator_obtained_at(self) -> float:
        """When the iterator was obtained, in seconds since the epoch."""
        return self._iterator_obtained_at

    def read(self, limit: int) -> Page:
        """Fetch the next page; see the port. After the end: the empty last page again, without a call."""
        start = self._start
        reply = self._next_reply(limit, RecordsForm())
        page = page_of(reply, stream=self._stream, shard_id=self._shard_id)
        return with_user_records(page, start=start, hash_keys=self._hash_keys) if self._deaggregate else page

    def read_arrow(self, limit: int) -> ArrowPage:
        """Fetch the next page as columns; otherwise the same as ``read``."""
        return self._next_reply(limit, self._arrow).page

    def when_ready(self, call: Callable[[], None]) -> None:
        """Do nothing: only a read finds out that there is something; see the port."""

    def close(self) -> None:
        """Do nothing: iterators end by themselves; see the port."""

    def _next_reply(self, limit: int, form: ReplyForm[Reply]) -> Reply:
        check_limit(limit)
        if self._last is not None:
            return form.convert(self._last)
        try:
            reply = self._get_records(self._current_iterator(), limit, form)
        except ITERATOR_REFUSED:
            reply = self._read_with_fresh_iterator(limit, form)
        self._advance(reply)
        return reply if self._start is None else self._from_start(reply, self._start)

    def _from_start(self, reply: Reply, start: Position) -> Reply:
        if reply.last is not None and start.includes(reply.last):
            self._start = None  # numbers only grow from here
        return reply.from_position(start)

    def _read_with_fresh_iterator(self, limit: int, form: ReplyForm[Reply]) -> Reply:
        self._iterator = None
        try:
            return self._get_records(self._current_iterator(), limit, form)
        except ITERATOR_REFUSED as refused:
            self._iterator = None
            failure = Unavailable(f"GetRecords of {self._question} refused a fresh iterator: {refused}")
            self._pacing.failed(self._clock.monotonic(), failure)
            raise failure from refused

    def _advance(self, reply: GetRecordsReply | ArrowReply) -> None:
        if reply.last is not None:
            self._position = Position.after(reply.last)
        self._iterator = reply.next_shard_iterator
        self._iterator_obtained_at = self._clock.time()
        if reply.at_end:
            self._last = GetRecordsReply(records=[], child_shards=reply.child_shards)

    def _current_iterator(self) -> str:
        age = self._clock.time() - self._iterator_obtained_at
        if self._iterator is None or not 0 <= age <= RENEW_AFTER_SECONDS:
            try:
                self._iterator = self._ask_iterator(self._position)
            except DataLoss as error:
                self._give_up_position(error)
                self._iterator = self._ask_iterator(self._position)
            self._iterator_obtained_at = self._clock.time()
        return self._iterator

    def _give_up_position(self, error: DataLoss) -> None:
        give_up_position(error, fail_on_data_loss=self._fail_on_data_loss)
        self.data_losses += 1
        self._position = Position.trim_horizon()

    def _ask_iterator(self, position: Position) -> str:
        arguments: dict[str, Any] = {
            **stream_arguments(self._stream),
            "ShardId": self._shard_id,
            "ShardIteratorType": position.type.value,
        }
        if position.sequence_number is not None:
            arguments["StartingSequenceNumber"] = position.sequence_number.kinesis
        if position.timestamp is not None:
            # Arrivals are whole milliseconds: a finer start would skip what arrived in its own millisecond.
            arguments["Timestamp"] = math.floor(position.timestamp * 1000) / 1000
        call = f"GetShardIterator of {self._question} at {position}"
        try:
            with translated(call):
                reply: Any = self._client.get_shard_iterator(**arguments)
            iterator: str = expected(reply, "ShardIterator", call)
        except DataLoss as error:
            refused = self._question.position_refused(position, error)
            if reaction_to(refused).action is Action.RETRY:
                self._pacing.failed(self._clock.monotonic(), refused)
            raise refused from error
        except KinesisError as error:
            self._raise(error)
        return iterator

    def _get_records(self, iterator: str, limit: int, form: ReplyForm[Reply]) -> Reply:
        started = self._pacing.await_turn(self._clock)
        try:
            if self._fetch_arrow is not None and isinstance(form, ArrowForm):
                reply: Reply = self._fetch_arrow(iterator, limit, form)
            else:
                reply = call_get_records(
                    self._client, iterator, limit, form, stream=self._stream, shard_id=self._shard_id
                )
        except ITERATOR_REFUSED:
            raise
        except KinesisError as error:
            self._raise(error)
        self._pacing.succeeded(started, reply.size_bytes)
        return reply

    def _raise(self, error: KinesisError) -> NoReturn:
        """Find out what an error really is, note it for the pacing, and raise it."""
        verified = self._question.not_found(error) if isinstance(error, ResourceNotFound) else error
        self.throttles += reaction_to(verified).is_throttle
        self._pacing.failed(self._clock.monotonic(), verified)
        if verified is error:
            raise error
        raise verified from error
