"""Rules that streaming and batch reads share."""

from collections.abc import Collection, Sequence
from typing import Final

from kinesis_spout.structured.options import values
from kinesis_spout.structured.options.given import GivenOptions

_OF_AGGREGATES: Final = ("subSequenceNumber", "explicitHashKey")


def check_consumer_mode(given: GivenOptions) -> None:
    """Refuse every way of reading but polling."""
    match (given.text("consumerMode") or "").lower():
        case "polling" | "getrecords":  # the latter is awslabs' word
            return
        case "efo" | "subscribetoshard":
            raise given.refuse("consumerMode", "enhanced fan-out is not there yet: expected polling")
    given.choice("consumerMode")


def one_stream_per_shard(
    given: GivenOptions, option: str, streams: Sequence[str], shard_ids: Collection[str]
) -> None:
    """Refuse positions per shard for several streams, whose shards have the same names."""
    if shard_ids and len(streams) > 1:
        raise given.refuse(
            option,
            f"expected one stream with positions per shard, got {len(streams)}, whose shard ids are not told "
            "apart; read each stream on its own",
        )


def extra_columns(given: GivenOptions) -> tuple[str, ...]:
    """Give the columns asked for beside the usual ones, spelled as in the schema, in the order asked for."""
    asked = given.names("extraColumns")
    for name in asked:
        if name.lower() in {column.lower() for column in _OF_AGGREGATES}:
            raise given.refuse(
                "extraColumns", f"{name} is not there: aggregated records are not taken apart yet"
            )
    spec = given.spec("extraColumns")
    columns = tuple(values.choice(spec, name) for name in asked)
    if len(set(columns)) != len(columns):
        values.refuse(spec, ", ".join(asked), "each once")
    return columns
