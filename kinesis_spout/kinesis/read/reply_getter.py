"""The base of polled and pushed getters: they make pages of replies, and advance the position.

No record before the start is returned, whatever was requested: a position given up for the oldest record may
turn out not to have been trimmed, and the records before it were handled.
"""

import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from kinesis_spout.kinesis.calls import (
    RAW_BODY,
    ResourceNotFound,
    account_arguments,
    shard_text,
    translated,
)
from kinesis_spout.kinesis.io_thread import IO
from kinesis_spout.kinesis.pace import Pacing
from kinesis_spout.kinesis.read.continuity import CLOCK_SKEW_SECONDS, Continuity
from kinesis_spout.kinesis.read.data_loss import lose
from kinesis_spout.kinesis.read.page import (
    Body,
    ChildShard,
    GetRecordsReply,
    decode_reply,
    page_of,
)
from kinesis_spout.kinesis.read.read_settings import MAX_RECORDS, ReadSettings
from kinesis_spout.kinesis.read.user_records import HashKeys, page_as_set
from kinesis_spout.kinesis.retry_policy import reaction_to
from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import DataLoss, KinesisError, KinesisSpoutError, ShardNotFound, Unavailable
from kinesis_spout.ports import Page, ShardLister
from shard_state import Position

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

    from kinesis_spout.kinesis.read.arrow import ArrowForm, ArrowPage

Reply = TypeVar("Reply", GetRecordsReply, "ArrowPage")
_Made_co = TypeVar("_Made_co", GetRecordsReply, "ArrowPage", covariant=True)
IN_PLACE_BYTES: Final = 4096
"""A body up to this size is decoded in the I/O thread; handing it on would cost more."""

_log = logging.getLogger(__name__)


class ReplyForm(Protocol[_Made_co]):
    def decode(self, body: Body) -> _Made_co:
        """Decode the body of a good reply. Raises Unavailable for anything else."""
        ...

    def convert(self, reply: GetRecordsReply) -> _Made_co: ...


class RecordsForm(NamedTuple):
    stream: str
    shard_id: str

    def decode(self, body: Body) -> GetRecordsReply:
        return decode_reply(body, stream=self.stream, shard_id=self.shard_id)

    def convert(self, reply: GetRecordsReply) -> GetRecordsReply:
        return reply.placed(self.stream, self.shard_id)


async def get_records(
    client: "KinesisClient",
    iterator: str,
    limit: int,
    form: ReplyForm[Reply],
    *,
    stream: str,
    shard_id: str,
) -> Reply:
    """Make one call, in the I/O thread. A client that has no ``exchange`` makes it on another one."""
    call: Any = client.get_records
    arguments = {"ShardIterator": iterator, "Limit": limit, **account_arguments(stream)}
    with translated(f"GetRecords of {shard_text(stream, shard_id)}"):
        if hasattr(call, "exchange"):
            response = await call.exchange(**arguments)
        else:
            response = await IO.in_thread(partial(call, **arguments))
        body = response.get(RAW_BODY)
        if body is None:
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            raise Unavailable(
                f"GetRecords expected a page with status 200, got {status}; the call is repeated"
            )
        if len(body) > IN_PLACE_BYTES:
            return await IO.in_thread(partial(form.decode, body))
        return form.decode(body)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardInQuestion:
    stream: str
    """Its name, or its ARN."""
    shard_id: str
    lister: ShardLister
    clock: Clock

    def __str__(self) -> str:
        return shard_text(self.stream, self.shard_id)

    def not_over(self) -> KinesisError | None:
        """Return why a reply that ends the shard without child shards is no end; None if it is one."""
        try:
            listed = self.lister.list_shards()
        except KinesisError as answer:
            return answer
        if any(
            self.shard_id in shard.parents or (shard.shard_id == self.shard_id and shard.closed)
            for shard in listed
        ):
            return None
        return Unavailable(
            f"GetRecords of {self} gave no next iterator and no child shards, as if the shard were over; the "
            "stream does not list it as closed, so it is asked again"
        )

    def not_found(self, error: ResourceNotFound) -> KinesisError:
        try:
            listed = {shard.shard_id for shard in self.lister.list_shards()}
        except KinesisError as answer:  # StreamNotFound, or the listing fails
            return answer
        if self.shard_id in listed:
            return Unavailable(f"{error}; yet the stream lists the shard, so it is tried again")
        return ShardNotFound(
            f"expected shard {self.shard_id!r} among the {len(listed)} that stream {self.stream!r} lists, "
            "but retention has trimmed it away; what was not read of it is gone"
        )

    def position_refused(self, position: Position, error: DataLoss) -> KinesisError:
        if position.timestamp is not None and self.clock.time() - position.timestamp < CLOCK_SKEW_SECONDS:
            return Unavailable(
                f"{error}; Kinesis refuses times that its own clock has not reached, so the call is repeated. "
                "If this continues, correct this machine's clock"
            )
        if position.sequence_number is None:
            return KinesisError(str(error))  # not the position: an argument of ours is wrong
        return self.lost(position, error, "it is behind the stream's retention, or not of this shard")

    def lost(
        self,
        position: Position,
        error: DataLoss,
        why: str = "the stream's retention can have trimmed unread records there",
    ) -> DataLoss:
        return DataLoss(
            f"cannot read {self} from {position}: {why}. The records from there to the oldest one left are lost "
            f"to this application ({error})"
        )


class ReplyGetter(ABC):
    """A ``ShardGetter``, also of columns. Mutable, not thread-safe. For its contract see the port."""

    def __init__(
        self,
        *,
        stream: str,
        shard_id: str,
        position: Position,
        lister: ShardLister,
        settings: ReadSettings,
        hash_keys: HashKeys | None,
        pacing: Pacing,
        clock: Clock,
    ) -> None:
        self._stream = stream
        self._shard_id = shard_id
        self._settings = settings
        self._hash_keys = hash_keys
        self._pacing = pacing
        self._clock = clock
        self._question = ShardInQuestion(stream=stream, shard_id=shard_id, lister=lister, clock=clock)
        self._arrow: ArrowForm | None = None
        self._position = position.resolved(clock.time())
        self._start: Position | None = None
        """No record before it is returned; None while no earlier one can come."""
        self._keep_from(self._position)
        self._continuity = Continuity(self._position)
        self._seen_at = 0.0
        """When the last reply was asked for, or pushed at the latest: seconds since the epoch."""
        self._losses = 0
        """The losses of the reply under way."""
        self._last: GetRecordsReply | None = None
        """The page that is returned again after the shard's end."""
        self.data_losses = 0
        """The number of positions that were given up (``fail_on_data_loss`` is off)."""
        self.throttles = 0

    @property
    def position(self) -> Position:
        return self._position.known_since(self._continuity.since)

    @property
    def ready_at(self) -> float:
        """The monotonic time before which a read would exceed the shard's limits, or return nothing."""
        return self._pacing.ready_at

    def read(self, limit: int) -> Page:
        """Return the next page; after the end: the empty last page again, without a call."""
        return IO.run(self.reading(limit))

    def read_arrow(self, limit: int) -> "ArrowPage":
        return IO.run(self.reading_arrow(limit))

    async def reading(self, limit: int) -> Page:
        """Read as ``read`` does, in the I/O thread."""
        reply, start = await self._next_reply(limit, RecordsForm(self._stream, self._shard_id))
        if reply.size_bytes > IN_PLACE_BYTES:
            return await IO.in_thread(partial(self._page, reply, start))
        return self._page(reply, start)

    def _page(self, reply: GetRecordsReply, start: Position | None) -> Page:
        page = page_of(reply, since=self._continuity.since, data_losses=self._losses)
        if not reply.may_have_aggregates:
            return page
        return page_as_set(page, self._settings, start=start, hash_keys=self._hash_keys)

    async def reading_arrow(self, limit: int) -> "ArrowPage":
        """Read as ``read_arrow`` does, in the I/O thread."""
        if self._arrow is None:
            from kinesis_spout.kinesis.read.arrow import ArrowForm  # noqa: PLC0415 - plain doors do without pyarrow

            self._arrow = ArrowForm(
                stream=self._stream,
                shard_id=self._shard_id,
                settings=self._settings,
                hash_keys=self._hash_keys,
            )
        page, _ = await self._next_reply(limit, self._arrow)
        return replace(page, since=self._continuity.since, data_losses=self._losses)

    @abstractmethod
    async def _ask(self, limit: int, form: ReplyForm[Reply]) -> Reply:
        """Return the reply that follows the position."""

    @abstractmethod
    def _begin_anew(self) -> None:
        """Forget how far reading came: the next reply follows the position again."""

    @abstractmethod
    def _begin_at_oldest(self) -> None:
        """Ask again from the oldest record on, if replies come only to what is asked."""

    @abstractmethod
    async def _drop_connections(self) -> None:
        """Have no later call use the connection that an answer to another call came by."""

    async def _next_reply(self, limit: int, form: ReplyForm[Reply]) -> tuple[Reply, Position | None]:
        """Return the reply that follows the position, and the first position of which it may have something."""
        if not 1 <= limit <= MAX_RECORDS:
            raise ValueError(f"expected a limit of 1 to {MAX_RECORDS} records, got {limit}")
        self._losses = 0
        if self._last is not None:
            return form.convert(self._last), None
        reply = await self._ask(limit, form)
        error = await self._error_in(reply)
        if error is not None:
            self._begin_anew()
            await self._drop_connections()
            self._note(error)
            raise error
        await self._look_for_gap(reply)
        self._pacing.answered()
        if reply.last is not None:
            self._position = Position.after(reply.last)
        if reply.at_end:
            self._last = GetRecordsReply(
                records=[], announced=[ChildShard.of(child) for child in reply.child_shards]
            )
        start = self._start
        if start is None:
            return reply, None
        if reply.last is not None and start.includes(reply.last):
            self._start = None  # numbers only grow from here
        return reply.from_position(start), start

    async def _look_for_gap(self, reply: "GetRecordsReply | ArrowPage") -> None:
        """Give the position up if records can be missing between it and a reply."""
        continuity, behind = self._continuity, (reply.millis_behind_latest or 0) / 1000
        if not continuity.is_met_by(reply.first):
            check = partial(
                continuity.check,
                reply.first,
                reply.first_arrival,
                behind,
                now=self._clock.time(),
                at_end=reply.at_end,
                retention_hours=lambda: self._question.lister.summary().retention_hours,
            )
            try:
                begins_at_oldest = await IO.in_thread(check)
            except DataLoss as error:
                if self._settings.fail_on_data_loss or not (reply.first or reply.at_end):
                    self._begin_anew()
                self._give_up_position(self._question.lost(self.position, error))
            except KinesisError as error:
                self._begin_anew()
                self._note(error)
                raise
            else:
                if begins_at_oldest:
                    self._begin_at_oldest()
        continuity.has_read(reply.last_arrival, behind, seen_at=self._seen_at)

    async def _error_in(self, reply: Reply) -> KinesisError | None:
        """Return why a reply cannot be the answer; None: it may be."""
        # Until the start is reached the record before the position is asked for, too.
        asked = self._position if self._start is None else self._continuity.asked(self._position)
        if reply.first is not None and not asked.includes(reply.first):
            return Unavailable(
                f"GetRecords of {self._question} expected records from {asked} on, got {reply.first}: "
                "that is the answer to another call, so it is asked again over other connections"
            )
        strangers = [child.shard_id for child in reply.child_shards if self._shard_id not in child.parents]
        if strangers:
            return Unavailable(
                f"GetRecords of {self._question} expected its child shards, got those of others: "
                f"{', '.join(strangers)}; it is asked again over other connections"
            )
        if not reply.at_end or reply.child_shards:
            return None
        return await IO.in_thread(self._question.not_over)

    def _keep_from(self, position: Position) -> None:
        if self._start is None and position.sequence_number is not None:
            self._start = position

    def _give_up_position(self, error: DataLoss) -> None:
        """Continue at the oldest record, because the position is lost."""
        lose(
            str(error),
            fail=self._settings.fail_on_data_loss,
            so_that="reading continues at the oldest one, without what is still there from before that position",
            cause=error,
        )
        self.data_losses += 1
        self._losses += 1
        self._continuity.is_given_up()
        self._position = Position.trim_horizon()

    async def _verified(self, error: KinesisSpoutError) -> KinesisSpoutError:
        if not isinstance(error, ResourceNotFound):
            return error
        return await IO.in_thread(partial(self._question.not_found, error))

    def _note(self, error: KinesisSpoutError) -> None:
        self.throttles += reaction_to(error).is_throttle
        self._pacing.failed(self._clock.monotonic(), error)
