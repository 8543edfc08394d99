"""Which streams a read or write names, and the client that reaches them."""

from collections.abc import Collection, Sequence

from kinesis_spout.kinesis import KinesisClientSettings
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.settings.grammar.streams import PART_WORDS, check_streams, is_pattern
from kinesis_spout.settings.kinesis import client_settings
from kinesis_spout.settings.messages import NotAllowed
from kinesis_spout.settings.rules import check_credentials, region
from kinesis_spout.settings.source_options.given import GivenOptions
from kinesis_spout.settings.table.connection import STREAM


def streams_to_read(given: GivenOptions) -> tuple[str, ...]:
    """Give the names, or the ARNs, and the patterns of them, in the order in which they were given."""
    option = _stream_option(given)
    if option is None:
        raise InvalidConfig(
            "no stream is named: expected the option streamName or streamARN; or, if it is an option of a table, "
            "CREATE TABLE without a list of columns: with one, Spark hands the table's options to nobody"
        )
    streams: tuple[str, ...] = given.value(option)
    for stream in streams:
        _check_spelling(given, option, stream)
        try:
            check_streams(stream)
        except NotAllowed as error:
            raise error.refusal(f"option {option}", PART_WORDS, stream) from error
    return streams


def stream_to_write(given: GivenOptions) -> str | None:
    """Give the stream, by name or by ARN; None if none is named."""
    option = _stream_option(given)
    text = None if option is None else given.text(option)
    if option is not None and text is not None:
        _check_spelling(given, option, text)
        try:
            STREAM.of_text(text)
        except NotAllowed as error:
            raise error.refusal(f"option {option}", STREAM.words, text) from error
    return text


def one_stream_per_shard(
    given: GivenOptions, option: str, streams: Sequence[str], shard_ids: Collection[str]
) -> None:
    """Refuse positions per shard for several streams, whose shards have the same names."""
    several = f"got {len(streams)}" if len(streams) > 1 else f"{streams[0]} may find several"
    if shard_ids and (len(streams) > 1 or is_pattern(streams[0])):
        raise given.error(
            option,
            f"expected one stream with positions per shard, {several}, whose shard ids are not told apart; read "
            "each stream on its own",
        )


def client_of(given: GivenOptions, streams: Sequence[str], *, connections: int = 0) -> KinesisClientSettings:
    """Give the settings of a client for these streams that keeps at least so many connections."""
    values = given.client_values()
    check_credentials(values, given)
    return client_settings(values, region(values, streams, given), connections=connections)


def _stream_option(given: GivenOptions) -> str | None:
    if "streamName" in given and "streamARN" in given:
        raise given.error("streamARN", "expected either streamName or streamARN, got both; leave one out")
    return next((name for name in ("streamName", "streamARN") if name in given), None)


def _check_spelling(given: GivenOptions, option: str, stream: str) -> None:
    if stream.startswith("arn:") != (option == "streamARN"):
        right, kind = ("streamName", "a name") if option == "streamARN" else ("streamARN", "an ARN")
        raise given.error(option, f"{stream[:160]!r} is {kind}: give it as {right}")
