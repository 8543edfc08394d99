"""Opens the sink of a URL."""

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from kinesis_spout.dead_letters.json_lines import JsonLinesSink
from kinesis_spout.kinesis.client_settings import KinesisClientSettings
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.ports import DeadLetterSink

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

_S3: Final = frozenset({"s3", "s3a", "s3n"})
"""The last two are Hadoop's names of it."""
_REMOTE: Final = frozenset({"hdfs", "viewfs", "gs"})

_writable: Final[set[tuple[str, KinesisClientSettings | None]]] = set()


def check_url(url: str) -> None:
    """Refuse a URL at which no sink can be. Opens nothing. Raises InvalidConfig."""
    scheme, _, rest = url.partition("://")
    is_known = scheme in {"kinesis", *_S3, *_REMOTE} and rest != ""
    if local_directory(url) is None and not is_known:
        raise InvalidConfig(
            "dead_letters: expected a directory, file:///directory, s3://bucket/prefix, hdfs://host/directory, "
            f"gs://bucket/directory or kinesis://stream, got {url!r}"
        )


def check_once(url: str, sink: DeadLetterSink, *, aws: KinesisClientSettings | None = None) -> None:
    """Check that a sink can be written, once in this process: for callers that begin often."""
    if (url, aws) not in _writable:
        sink.check_writable()
        _writable.add((url, aws))


def local_directory(url: str) -> str | None:
    """Return the directory of a local sink; None if the URL is of another one.

    Raises:
        InvalidConfig: ``file://`` with a host.
    """
    scheme, separator, _ = url.partition("://")
    if not separator:
        return url
    if scheme != "file":
        return None
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise InvalidConfig(f"dead_letters: expected file:///directory, got {url!r}")
    return unquote(parts.path)


def open_sink(
    url: str, *, client: "KinesisClient | None" = None, aws: KinesisClientSettings | None = None
) -> DeadLetterSink:
    """Open the sink of a URL or a path, such as `SpoutConfig.dead_letters_url`.

    ``file:///directory`` and a path without a scheme are a local directory. ``kinesis://stream`` is a stream,
    reached with ``client``. ``s3://bucket/prefix`` is S3, with the credentials and in the region of ``aws``,
    else boto3's. ``hdfs://``, ``viewfs://`` and ``gs://`` are PyArrow's, with what it finds by itself.

    Raises:
        InvalidConfig: the URL is of no sink, or ``kinesis://`` without a client.
        MissingExtra: PyArrow is wanted, and not installed.
    """
    check_url(url)
    if (directory := local_directory(url)) is not None:
        return JsonLinesSink(directory)
    scheme, _, rest = url.partition("://")
    if scheme == "kinesis":
        if client is None:
            raise InvalidConfig(f"dead_letters: expected a Kinesis client to open {url!r} with, got none")
        from kinesis_spout.dead_letters.kinesis_stream import KinesisStreamSink  # noqa: PLC0415 - few have it

        return KinesisStreamSink(client, rest)
    if scheme in _S3:
        from kinesis_spout.dead_letters.s3 import S3Sink  # noqa: PLC0415 - starts PyArrow's part for S3

        return S3Sink(url, session=(aws or KinesisClientSettings()).session)
    from kinesis_spout.dead_letters.remote_files import RemoteFilesSink  # noqa: PLC0415 - as above

    return RemoteFilesSink(url)
