"""What can be found out about a Hadoop URL before there is a JVM."""

import socket
from typing import Final
from urllib.parse import urlsplit

from kinesis_spout.model.errors import DeadLetterError, InvalidConfig

CONNECT_SECONDS: Final = 5.0

_READ_ONLY: Final = frozenset({"http", "https"})
_OF_BUCKETS: Final = frozenset({"s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "oss", "cosn", "obs"})


def check_address(url: str) -> None:
    """Refuse what no JVM could write to: a scheme that is only read, no bucket, a host and port nobody listens at.

    A name without a port may be one that only Hadoop's settings know, so it is left alone.

    Raises:
        InvalidConfig: the URL cannot be one.
        DeadLetterError: nobody listens.
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
