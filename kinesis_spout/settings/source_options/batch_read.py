"""The options of a batch read, as one frozen value that is valid."""

from collections.abc import Mapping
from dataclasses import dataclass

from kinesis_spout.kinesis import KinesisClientSettings, ReadSettings
from kinesis_spout.settings.grammar.shard_positions import EndPositions, rank
from kinesis_spout.settings.option import Use
from kinesis_spout.settings.source_options.given import GivenOptions
from kinesis_spout.settings.source_options.streams import client_of, one_stream_per_shard, streams_to_read
from shard_state import Position, StartPositions
from shard_state.position import PositionType


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReadOptions:
    """What ``spark.read.format("kinesis")`` was told. Can be pickled; secrets stay out of its text."""

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
        """Read the options as Spark hands them over.

        Raises:
            InvalidConfig: names the option that is unknown, wrong, or contradicts another.
        """
        given = GivenOptions(options, Use.BATCH_READ)
        streams = streams_to_read(given)
        start: StartPositions = given.value("startingPosition")
        end: EndPositions = given.value("endingPosition")
        one_stream_per_shard(given, "startingPosition", streams, start.shards)
        one_stream_per_shard(given, "endingPosition", streams, end.shards)
        _check_range(given, start, end)
        return given.made(
            cls,
            streams=streams,
            client=client_of(given, streams),
            start=start,
            end=end,
            read=given.read_settings(),
        )


def _check_range(given: GivenOptions, start: StartPositions, end: EndPositions) -> None:
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
