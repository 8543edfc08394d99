"""Which port the server of a data directory listens at."""

import socket
import zlib
from pathlib import Path
from typing import Final

from kinesis_spout.model.errors import StoreError
from kinesis_spout.zookeeper.embedded.java import HOST

_FIRST: Final = 20_000
_COUNT: Final = 12_000
"""Below every system's ports for outgoing connections (Linux: 32,768, others: 49,152). One of those could be
taken by any connection while the server is away; a client's own attempts to reconnect would be among them."""


def is_free(port: int) -> bool:
    """Whether nobody listens at ``port``."""
    with socket.socket() as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # the server's dead connections are no matter
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def port_for(data_dir: Path) -> int:
    """Choose a free port. The same directory leads to the same port, as long as that is free.

    Raises:
        StoreError: all are taken.
    """
    first = zlib.crc32(str(data_dir).encode())
    for step in range(_COUNT):
        port = _FIRST + (first + step) % _COUNT
        if is_free(port):
            return port
    raise StoreError(
        f"expected a free port for the embedded ZooKeeper on {HOST} between {_FIRST} and {_FIRST + _COUNT - 1}, "
        "found every one in use: end what uses them, or name an existing ensemble: zookeeper=host:2181"
    )
