"""The options of a write, streaming or batch, as one frozen value that is valid."""

from collections.abc import Mapping
from dataclasses import dataclass

from kinesis_spout.kinesis import KinesisClientSettings
from kinesis_spout.kinesis.write.put_records import PutOrder
from kinesis_spout.settings.option import Use
from kinesis_spout.settings.rules import check_dead_letters
from kinesis_spout.settings.source_options.option_reader import OptionReader


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
    """How long a shard may refuse everything before the task fails."""
    order: PutOrder
    """Which order of a task's rows holds when Kinesis refuses some."""
    dead_letters: str | None
    """Where rows go that Kinesis never accepts; None: such a row fails the write."""
    aggregate_bytes: int | None
    """What a record of several rows may weigh; None: each row is a record."""

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
