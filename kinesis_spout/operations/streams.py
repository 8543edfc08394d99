"""Operations on a stream itself: read it, put records on it, end its registered consumers."""

import base64
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from kinesis_spout.model.errors import KinesisError
from kinesis_spout.model.record import Record
from kinesis_spout.operations.errors import NotFound, WrongArguments
from kinesis_spout.operations.stored_progress import Listener
from kinesis_spout.operations.world import DEADLINE_SECONDS, StreamAccess, World, unheard
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.grammar.positions import parse_position_of_all_shards, resolved
from kinesis_spout.settings.setting_messages import NotAllowed
from shard_state import Position

if TYPE_CHECKING:
    from kinesis_spout.kinesis.read.fan_out.consumer_registration import RegisteredConsumer
    from kinesis_spout.model.errors import KinesisSpoutError
    from kinesis_spout.ports import ShardGetter
    from kinesis_spout.producer import KinesisProducer, Ticket

_PAGE_RECORDS: Final = 1_000
_BUFFERED: Final = 5_000
"""Records read ahead of Kinesis: one shard takes them well within ``DEADLINE_SECONDS``, which counts for each."""
_INTERRUPTED_SECONDS: Final = 2.0
"""After an interruption, what was read may take this long to be sent."""
_LINGER_SECONDS: Final = 0.05


def tail(
    world: World,
    config: SpoutConfig,
    start: str,
    *,
    shard_ids: Sequence[str] = (),
    count: int | None = None,
) -> Iterator[Record]:
    """A stream's records as they come, without storing anything. Parents come before their children.

    Every shard is read from ``start``, those that come later too; or only those that are named.
    """
    try:
        position = resolved(parse_position_of_all_shards(start), world.time(), start)
    except NotAllowed as error:
        raise WrongArguments(f"from: {error}") from error
    reader = _Reader(world.stream(config), position, shard_ids, world.listener)
    left = count
    while reader.is_reading and left != 0:
        # An aggregated record can hold more than are left.
        for record in islice(reader.read(_PAGE_RECORDS if left is None else min(left, _PAGE_RECORDS)), left):
            yield record
            left = None if left is None else left - 1


class _Reader:
    """Reads the shards of a stream in turn. Mutable: children are opened when their parents have ended."""

    def __init__(
        self, stream: StreamAccess, start: Position, chosen: Sequence[str], listener: Listener
    ) -> None:
        self._stream = stream
        self._start = start
        self._listener = listener
        self._reads_children = not chosen
        listed = {shard.shard_id: shard for shard in stream.lister.list_shards()}
        unknown = sorted(set(chosen) - listed.keys())
        if unknown:
            raise NotFound(f"expected shards that the stream lists ({', '.join(listed)}), got {unknown[0]}")
        self._unopened = {shard_id: listed[shard_id] for shard_id in chosen or listed}
        self._open: dict[str, ShardGetter] = {}
        self._ended: set[str] = set()
        self._open_what_may_be()

    @property
    def is_reading(self) -> bool:
        return bool(self._open)

    def read(self, limit: int) -> Iterator[Record]:
        shard_id = min(self._open, key=lambda each: self._open[each].ready_at)
        try:
            page = self._open[shard_id].read(limit)
        except KinesisError as error:
            if not error.retriable:
                raise
            self._listener.note(f"{shard_id} is tried again: {error}")
            return
        if page.at_end:
            del self._open[shard_id]
            self._ended.add(shard_id)
            if self._reads_children:
                known = self._open.keys() | self._ended
                self._unopened |= {
                    each.shard_id: each for each in page.child_shards if each.shard_id not in known
                }
            self._open_what_may_be()
        yield from page.records

    def _open_what_may_be(self) -> None:
        before = self._unopened.keys() | self._open.keys()
        for shard in [shard for shard in self._unopened.values() if not before & set(shard.parents)]:
            self._open[shard.shard_id] = self._stream.open_getter(shard.shard_id, self._start)
            del self._unopened[shard.shard_id]


def record_document(record: Record) -> dict[str, Any]:
    return {
        "shard_id": record.shard_id,
        "sequence_number": record.sequence_number,
        "sub_sequence_number": record.sub_sequence_number,
        "partition_key": record.partition_key,
        "explicit_hash_key": record.explicit_hash_key,
        "arrival_timestamp": record.arrival_timestamp,
    } | data_document(record.data)


def data_document(data: bytes) -> dict[str, Any]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = None
    return {"data_base64": base64.b64encode(data).decode(), "data_text": text}


def put(
    world: World,
    config: SpoutConfig,
    records: Iterable[bytes],
    *,
    key: str | None = None,
    total: int | None = None,
    at_once: bool = False,
) -> Counter[str]:
    """Put records on a stream, in order; say how many are on each shard.

    They have one partition key, or a random one each. With ``at_once``, for a person who types, each is sent
    before the next is asked for. ``total`` says how many there are, if known. Raises the error of the first
    record that could not be put.
    """
    from kinesis_spout.producer import KinesisProducer  # noqa: PLC0415 - imports boto3

    shards: Counter[str] = Counter()
    failed: list[KinesisSpoutError] = []
    shown = nullcontext(lambda _count: None) if at_once else world.listener.progress("records put", total)
    # The error at the end says what the producer's log of each try would.
    with unheard("kinesis_spout.producer"), shown as advance:

        def ended(ticket: "Ticket") -> None:
            error = ticket.exception()
            if error is not None:
                failed.append(error)
                return
            shards[ticket.result().shard_id] += 1
            advance(1)

        # One call at a time keeps the order of the records.
        with (
            KinesisProducer(
                config=config,
                client=world.client(config),
                max_concurrent_calls=1,
                max_buffered_records=_BUFFERED,
                linger_seconds=0 if at_once else _LINGER_SECONDS,
                delivery_timeout_seconds=DEADLINE_SECONDS,
                close_timeout_seconds=DEADLINE_SECONDS,
            ) as producer,
            _interruption_told(producer, world.listener),
        ):
            for record in records:
                producer.put(record, key or uuid.uuid4().hex).add_done_callback(ended)
                if at_once:
                    producer.flush()
                if failed:
                    break
            else:
                producer.flush()  # how long that takes is for DEADLINE_SECONDS of each record to say
    if failed:
        if shards:
            world.listener.note(f"records put before the failure: {shards.total():,}")
        raise failed[0]
    return shards


@contextmanager
def _interruption_told(producer: "KinesisProducer", listener: Listener) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        producer.close(_INTERRUPTED_SECONDS)
        listener.note(f"records put before the interruption: {producer.counts().sent:,}")
        raise


def list_registered(world: World, config: SpoutConfig) -> "list[RegisteredConsumer]":
    from kinesis_spout.kinesis.read.fan_out.consumer_registration import list_consumers  # noqa: PLC0415

    return list_consumers(world.client(config), _arn(world, config))


def find_registered(world: World, config: SpoutConfig, name: str | None) -> str:
    """The name of a registered consumer, of the application's unless one is named."""
    wanted = name or config.consumer_name or config.app
    if wanted not in {each.name for each in list_registered(world, config)}:
        raise NotFound(
            f"expected a registered consumer of stream {config.stream!r}, got {wanted!r}, which is not there: "
            "`kinesis-spout fan-out list` shows what is"
        )
    return wanted


def deregister(world: World, config: SpoutConfig, name: str) -> None:
    from kinesis_spout.kinesis.read.fan_out.consumer_registration import deregister_consumer  # noqa: PLC0415

    deregister_consumer(world.client(config), _arn(world, config), name)


def _arn(world: World, config: SpoutConfig) -> str:
    return config.stream_arn or world.stream(config).lister.summary().arn
