"""Groupings: which tasks of a subscriber get a tuple. Storm's, by their names, and ``rebalance``.

``shuffle``, ``local_or_shuffle`` and ``none`` promise only "some task", so the tuple stays in the process
that made it if it can. The others say which task, so the tuple can need to travel.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol
from zlib import crc32

import numpy as np

from kinesis_spout.model.errors import InvalidConfig


def stable_hash(key: tuple[Any, ...]) -> int:
    """A number from 0 to 2**32 - 1 that depends on the values and their types only.

    Numbers that are equal have the same hash (``1``, ``1.0``, ``True``, ``numpy.int64(1)``), as in Python's
    dictionaries.

    InvalidConfig: a value is of another kind than str, bytes, int, float, None, numpy's of these, and
    tuples.
    """
    value = 0
    for part in key:
        value = crc32(_bytes_of(part), value)
    return value


def _bytes_of(part: Any) -> bytes:
    if isinstance(part, str):
        return b"s" + part.encode("utf-8", "surrogatepass")
    if isinstance(part, (bytes, bytearray)):
        return b"b" + part
    if part is None:
        return b"n"
    if isinstance(part, (int, float)):
        return _of_number(part)
    if isinstance(part, tuple):
        return b"t" + b"".join(len(each).to_bytes(4, "big") + each for each in map(_bytes_of, part))
    return _bytes_of(_of_numpy(part))


def _of_number(part: float) -> bytes:
    if isinstance(part, int) or part.is_integer():
        return b"i" + str(int(part)).encode()
    return b"f" + part.hex().encode()


def _of_numpy(part: Any) -> Any:
    plain = part.item() if isinstance(part, np.generic) else part
    if isinstance(plain, (bool, int, float)) and plain is not part:
        return plain
    raise InvalidConfig(
        f"expected to group by str, bytes, int, float, None, or tuples of these, got {type(part).__name__}: only "
        "those have the same hash in every process; emit it as text, too, and group by that"
    )


class CustomGrouping(Protocol):
    """The user's own grouping. Pickled to the executors."""

    def choose_tasks(self, tasks: Sequence[int], values: Sequence[Any]) -> Sequence[int]:
        """Choose the tasks that get a tuple.

        Args:
            tasks: the ids of the subscriber's tasks, ascending.
            values: the tuple's.

        Returns:
            Any of these ids; an empty sequence drops the tuple for this subscriber.
        """
        ...


class GroupingKind(Enum):
    SHUFFLE = "shuffle"
    LOCAL_OR_SHUFFLE = "local_or_shuffle"
    NONE = "none"
    REBALANCE = "rebalance"
    FIELDS = "fields"
    PARTIAL_KEY = "partial_key"
    ALL = "all"
    GLOBAL = "global"
    DIRECT = "direct"
    CUSTOM = "custom"

    @property
    def stays(self) -> bool:
        """Whether any task will do, so that the one at hand is chosen."""
        return self in (GroupingKind.SHUFFLE, GroupingKind.LOCAL_OR_SHUFFLE, GroupingKind.NONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    kind: GroupingKind
    fields: tuple[str, ...] = ()
    """Of FIELDS and PARTIAL_KEY: by which the tuples are grouped."""
    custom: CustomGrouping | None = None

    def told(self) -> tuple[str, tuple[str, ...]]:
        return self.kind.value, self.fields

    def __str__(self) -> str:
        if self.fields:
            return f"{self.kind.value} by {', '.join(self.fields)}"
        if self.custom is not None:
            return f"{self.kind.value} {type(self.custom).__name__}"
        return self.kind.value
