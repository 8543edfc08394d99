"""Opens the sink of a URL, and checks it before."""

import socket
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from kinesis_spout.dead_letters.json_lines import JsonLinesSink
from kinesis_spout.kinesis.client_settings import KinesisClientSettings
from kinesis_spout.model.errors import DeadLetterError, InvalidConfig
from kinesis_spout.ports import DeadLetterSink

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

CONNECT_SECONDS: Final = 5.0

_READ_ONLY: Final = frozenset({"http", "https"})
_OF_BUCKETS: Final = frozenset({"s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "oss", "cosn", "obs"})
_WITHOUT_JVM: Final = frozenset({"file", "kinesis", "s3"})

_writable: Final[set[tuple[str, KinesisClientSettings | None]]] = set()


def needs_jvm(url: str) -> bool:
    """Whether a sink is reached through Hadoop, and so through a JVM."""
    scheme, separator, _ = url.partition("://")
    return bool(separator) and scheme not in _WITHOUT_JVM


def check_address(url: str) -> None:
    """Refuse what no JVM could write to: a read-only scheme, no bucket, a host and port without a listener.

    A name without a port may be one that only Hadoop's settings know, so it passes.

    Raises:
        InvalidConfig: the URL is invalid.
        DeadLetterError: no process listens.
    """
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidConfig(f"dead_letters: expected a URL with a port of 1 to 65535, got {url!r}") from error
    if parts.scheme in _READ_ONLY:
        raise InvalidConfig(
            f"dead_letters: expected a directory, file:///, s3://, kinesis:// or a Hadoop URL that can be written "
            f"to, such as hdfs://, got {url!r}: Hadoop only reads {parts.scheme}://"
        )
    if parts.scheme in _OF_BUCKETS and not parts.netloc:
        raise InvalidConfig(f"dead_letters: expected {parts.scheme}://bucket/directory, got {url!r}")
    if host is None or port is None:
        return
    try:
        socket.create_connection((host, port), CONNECT_SECONDS).close()
    except OSError as error:
        raise DeadLetterError(
            f"expected a server at {host}:{port}, where {url!r} is, got {error}; check the address, and "
            "that the server runs"
        ) from error


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
    else boto3's. Everything else is Hadoop's, also ``s3a://``, which may start PySpark's JVM.

    Raises:
        InvalidConfig: ``kinesis://`` without a client, ``file://`` with a host, ``s3://`` without a bucket.
        DeadLetterError: Hadoop cannot open the URL.
    """
    if (directory := local_directory(url)) is not None:
        return JsonLinesSink(directory)
    scheme, _, rest = url.partition("://")
    if scheme == "kinesis":
        if client is None:
            raise InvalidConfig(f"dead_letters: expected a Kinesis client to open {url!r} with, got none")
        from kinesis_spout.dead_letters.kinesis_stream import KinesisStreamSink  # noqa: PLC0415 - few have it

        return KinesisStreamSink(client, rest)
    if scheme == "s3":
        from kinesis_spout.dead_letters.s3 import S3Sink  # noqa: PLC0415 - starts PyArrow's part for S3

        return S3Sink(url, session=(aws or KinesisClientSettings()).session)
    from kinesis_spout.dead_letters.hadoop import HadoopSink  # noqa: PLC0415 - PySpark is slow to import

    return HadoopSink(url)
