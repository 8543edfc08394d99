"""What a stateful bolt is given: ``KeyValueState`` on what is stored, with the changes of one micro-batch over it.

Stored values are kept as they were pickled. ``get`` of one that this micro-batch has not put gives a new object
each time: so whatever is done to it in place is forgotten with the micro-batch, unless it is put.
"""

import pickle
from collections.abc import Iterator
from typing import Any, Final

from kinesis_spout.errors import InvalidConfig
from kinesis_spout.topology.graph.stable_hash import stable_hash

DELETED: Final = object()
_ABSENT: Final = object()


class PartitionState:
    """Implements ``KeyValueState``. Mutable; of one task.

    A key of one grouping field is its value; ``(value,)`` means the same, and must be written where the value is a
    tuple itself.
    """

    __slots__ = ("_index", "_parallelism", "changes", "stored")

    def __init__(self, index: int, parallelism: int) -> None:
        self._index = index
        self._parallelism = parallelism
        self.stored: dict[Any, bytes] = {}
        """Keys, with their pickled values."""
        self.changes: dict[Any, Any] = {}
        """What this micro-batch has put, by key; ``DELETED`` where it has deleted."""

    def get(self, key: Any, default: Any = None) -> Any:
        """See ``KeyValueState``."""
        value = self.changes.get(key, _ABSENT)
        if value is _ABSENT:
            pickled = self.stored.get(key)
            if pickled is not None:
                return pickle.loads(pickled)  # noqa: S301 - written by the user's own bolt
            own = self._own(key)
            return self.get(own, default) if own is not key else default
        return default if value is DELETED else value

    def put(self, key: Any, value: Any) -> None:
        """See ``KeyValueState``."""
        if key in self.changes or key in self.stored:
            self.changes[key] = value
        else:
            self.changes[self._own(key)] = value

    def delete(self, key: Any) -> None:
        """See ``KeyValueState``."""
        self.put(key, DELETED)

    def __contains__(self, key: Any) -> bool:
        return self.get(key, _ABSENT) is not _ABSENT

    def items(self) -> Iterator[tuple[Any, Any]]:
        """See ``KeyValueState``."""
        # A copy: what is put by whoever goes through them must not come a second time.
        changes = dict(self.changes)
        for key, pickled in self.stored.items():
            if key not in changes:
                yield key, pickle.loads(pickled)  # noqa: S301 - written by the user's own bolt
        for key, value in changes.items():
            if value is not DELETED:
                yield key, value

    def _own(self, key: Any) -> Any:
        """Give a key as it is kept.

        Raises:
            InvalidConfig: it is another task's.
        """
        own = kept_key(key)
        index = task_of(own, self._parallelism)
        if index != self._index:
            raise InvalidConfig(
                f"expected a key of task {self._index} of {self._parallelism}, got {key!r}, which is of "
                f"task {index}: a key must be the values of the fields that the tuple at hand was grouped by, one "
                "value or a tuple of several; a single value that is a tuple itself is written (value,)"
            )
        return own


def kept_key(key: Any) -> Any:
    """Give a key as it is kept: a tuple of one value, unless that is a tuple too, as the value."""
    if isinstance(key, tuple) and len(key) == 1 and not isinstance(key[0], tuple):
        return key[0]
    return key


def task_of(key: Any, parallelism: int) -> int:
    """Say which of so many tasks has a key, as ``fields_grouping`` does.

    Raises:
        InvalidConfig: it is of a kind that cannot be grouped by.
    """
    return stable_hash(key if isinstance(key, tuple) else (key,)) % parallelism
