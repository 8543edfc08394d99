"""The options of one use of format("kinesis"), as one frozen value that is valid: a class for each use."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kinesis_spout.kinesis import KinesisClientSettings, ReadSettings
from kinesis_spout.kinesis.write.put_records import PutOrder
from kinesis_spout.settings.grammar.shard_positions import EndPositions, rank
from kinesis_spout.settings.grammar.stream_names import is_pattern
from kinesis_spout.settings.option import Use
from kinesis_spout.settings.rules import check_dead_letters, fan_out_consumer
from kinesis_spout.settings.source_options.option_reader import OptionReader
from shard_state import Position, StartPositions
from shard_state.position import PositionType


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReadOptions:
    """The options of ``spark.readStream.format("kinesis")``. Can be pickled; its repr shows no secrets."""

    streams: tuple[str, ...]
    """Names, or ARNs, and patterns of them."""
    stream_list_interval_seconds: float
    """Between two searches for streams that a pattern finds."""
    client: KinesisClientSettings
    start: StartPositions
    """LATEST is not resolved here."""
    read: ReadSettings
    idle_fetch_period_seconds: float
    """At least ``read.fetch_period_seconds``."""
    shard_list_seconds: float
    shards_per_task: int | None
    bytes_per_task: int
    max_records_per_trigger: int | None
    max_bytes_per_trigger: int | None
    min_records_per_trigger: int | None
    max_trigger_delay_seconds: float
    """Used with ``min_records_per_trigger`` only."""
    max_arrival_skew_seconds: float
    """A record of a later batch can have arrived by so much earlier than one of a batch."""
    max_buffered_bytes: int
    fetch_threads: int
    log_level: str
    page_host: str | None
    """The address at which executors reach the driver; None: detected."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "StreamReadOptions":
        """Parse the options as Spark gives them. Raises InvalidConfig."""
        given = OptionReader(options, Use.STREAM_READ)
        streams = given.streams_to_read()
        start: StartPositions = given.value("initialPosition")
        _check_positions(given, "initialPosition", streams, start.shards)
        _check_trigger(given)
        return given.made(
            cls,
            streams=streams,
            client=given.client(streams, connections=given.value("fetchThreads")),
            start=start,
            idle_fetch_period_seconds=_idle_fetch_period(given),
            read=given.read_settings(fan_out_consumer=_fan_out_consumer(given)),
            log_level=given.value("logLevel").upper(),
        )


def _idle_fetch_period(given: OptionReader) -> float:
    busy: float = given.value("minFetchPeriod")
    idle: float = given.value("idleFetchPeriod")
    if idle < busy and "idleFetchPeriod" in given:
        raise given.error("idleFetchPeriod", f"expected at least minFetchPeriod, {busy:g} s, got {idle:g} s")
    return max(busy, idle)


def _fan_out_consumer(given: OptionReader) -> str | None:
    mode, name = given.value("consumerMode"), given.value("consumerName")
    if mode == "efo" and name is None:
        raise given.error("consumerMode", "expected consumerName as well with efo: the registered consumer")
    return fan_out_consumer(mode, name, "", given)


def _check_trigger(given: OptionReader) -> None:
    least, most = given.value("minRecordsPerTrigger"), given.value("maxRecordsPerTrigger")
    if least is None and "maxTriggerDelay" in given:
        raise given.error(
            "maxTriggerDelay", "expected minRecordsPerTrigger as well: it waits for so many records"
        )
    if least is not None and most is not None and least > most:
        raise given.error(
            "minRecordsPerTrigger", f"expected at most maxRecordsPerTrigger, {most}, got {least}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReadOptions:
    """The options of ``spark.read.format("kinesis")``. Can be pickled; its repr shows no secrets."""

    streams: tuple[str, ...]
    """Names, or ARNs, and patterns of them."""
    client: KinesisClientSettings
    start: StartPositions
    """Never LATEST."""
    end: EndPositions
    """LATEST means the time of load; see ``EndPositions``."""
    read: ReadSettings
    shards_per_task: int | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "BatchReadOptions":
        """Parse the options as Spark gives them. Raises InvalidConfig."""
        given = OptionReader(options, Use.BATCH_READ)
        streams = given.streams_to_read()
        start: StartPositions = given.value("startingPosition")
        end: EndPositions = given.value("endingPosition")
        _check_positions(given, "startingPosition", streams, start.shards)
        _check_positions(given, "endingPosition", streams, end.shards)
        _check_range(given, start, end)
        return given.made(
            cls,
            streams=streams,
            client=given.client(streams),
            start=start,
            end=end,
            read=given.read_settings(),
        )


def _check_range(given: OptionReader, start: StartPositions, end: EndPositions) -> None:
    if any(position.type is PositionType.LATEST for position in (start.default, *start.shards.values())):
        raise given.error(
            "startingPosition",
            "a batch read from latest would read nothing: expected trim_horizon, a time, or sequence numbers",
        )
    for shard_id in ("", *start.shards, *end.shards):
        first, last = start.of_shard(shard_id), end.of_shard(shard_id)
        if _is_before(last, first):
            of_shard = f" of {shard_id}" if shard_id else ""
            raise given.error("endingPosition", f"the end{of_shard}, {last}, is before its start, {first}")


def _is_before(end: Position, start: Position) -> bool:
    if end.sequence_number is not None and start.sequence_number is not None:
        return rank(end) < rank(start)
    return end.timestamp is not None and start.timestamp is not None and end.timestamp < start.timestamp


def _check_positions(
    given: OptionReader, option: str, streams: Sequence[str], shard_ids: Collection[str]
) -> None:
    """Refuse positions per shard for several streams, whose shards have the same names."""
    several = f"got {len(streams)}" if len(streams) > 1 else f"{streams[0]} may find several"
    if shard_ids and (len(streams) > 1 or is_pattern(streams[0])):
        raise given.error(
            option,
            f"expected one stream with positions per shard, {several}, whose shard ids are not told apart; read "
            "each stream on its own",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of a write to ``format("kinesis")``. Can be pickled; its repr shows no secrets."""

    stream: str | None
    """A name or an ARN; None: in each row's column ``stream``."""
    client: KinesisClientSettings
    partition_key: str | None
    """The column that holds the partition key; None: ``partitionKey``."""
    max_records_per_call: int
    max_bytes_per_call: int
    deadline_seconds: float
    """A shard may refuse everything for so long before the task fails."""
    order: PutOrder
    """The order of a task's rows that holds when Kinesis refuses some."""
    dead_letters: str | None
    """The place of rows that Kinesis never accepts; None: such a row fails the write."""
    aggregate_bytes: int | None
    """The maximum of a record of several rows; None: each row is a record."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "WriteOptions":
        """Parse the options as Spark gives them. Raises InvalidConfig."""
        given = OptionReader(options, Use.WRITE)
        stream = given.stream_to_write()
        check_dead_letters(given.value("deadLetters"), stream, given)
        return given.made(
            cls,
            stream=stream,
            client=given.client(() if stream is None else (stream,)),
            order=PutOrder(given.value("order")),
            aggregate_bytes=_aggregate_bytes(given),
        )


def _aggregate_bytes(given: OptionReader) -> int | None:
    if given.value("aggregation"):
        size: int = given.value("aggregationMaxSize")
        return size
    if "aggregationMaxSize" in given:
        raise given.error(
            "aggregationMaxSize", "expected it only with aggregation=true; add that or leave it out"
        )
    return None
