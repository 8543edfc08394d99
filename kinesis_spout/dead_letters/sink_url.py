"""Which sink a URL means."""

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from kinesis_spout.dead_letters.json_lines import JsonLinesSink
from kinesis_spout.dead_letters.kinesis_stream import KinesisStreamSink
from kinesis_spout.errors import InvalidConfig
from kinesis_spout.ports import DeadLetterSink

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient


def open_sink(url: str, *, client: "KinesisClient | None" = None) -> DeadLetterSink:
    """Open the sink that a URL or a path names; `SpoutConfig.dead_letters_url` gives one.

    ``file:///directory`` and a path without a scheme are a local directory, ``kinesis://stream`` is a stream,
    reached with ``client``, and everything else is Hadoop's, which may start PySpark's JVM.

    Raises:
        InvalidConfig: ``kinesis://`` without a client, or ``file://`` with a host.
        DeadLetterError: Hadoop cannot open the URL.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return JsonLinesSink(url)
    if scheme == "file":
        parts = urlsplit(url)
        if parts.netloc not in ("", "localhost"):
            raise InvalidConfig(f"dead_letters: expected file:///directory, got {url!r}")
        return JsonLinesSink(unquote(parts.path))
    if scheme == "kinesis":
        if client is None:
            raise InvalidConfig(f"dead_letters: expected a Kinesis client to open {url!r} with, got none")
        return KinesisStreamSink(client, rest)
    from kinesis_spout.dead_letters.hadoop import HadoopSink  # noqa: PLC0415 - PySpark is slow to import

    return HadoopSink(url)
