"""Cuts many operations into transactions that ZooKeeper takes.

A request larger than the server's ``jute.maxbuffer`` (1 MiB by default) makes it drop the connection.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

_OPERATION_OVERHEAD_BYTES = 96
"""What an operation weighs besides its data and two paths: headers, versions, the ACL of a create."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkLimits:
    """How large one transaction may be. An operation that alone is larger goes alone."""

    max_bytes: int = 512 * 1024
    max_writes: int = 2_000
    max_indivisible_bytes: int = 960 * 1024
    """Of a transaction that cannot be cut: what the server takes, less what is estimated too low."""


def chunked(items: Iterable[T], size_bytes: Callable[[T], int], limits: ChunkLimits) -> Iterator[list[T]]:
    """Give the items in order, in lists within the limits; none is empty."""
    chunk: list[T] = []
    total = 0
    for item in items:
        size = size_bytes(item)
        if chunk and (total + size > limits.max_bytes or len(chunk) >= limits.max_writes):
            yield chunk
            chunk, total = [], 0
        chunk.append(item)
        total += size
    if chunk:
        yield chunk


def operation_bytes(path: str, data: bytes) -> int:
    """Say how much of a transaction an operation takes, at most."""
    return len(data) + 2 * len(path) + _OPERATION_OVERHEAD_BYTES
