"""What a stateful bolt gets: ``KeyValueState`` on what is stored, with the changes of one micro-batch over it.

Stored values are kept as they were pickled. ``get`` of one that this micro-batch has not put gives a new
object each time: so changes in place are forgotten with the micro-batch, unless the value is put.

As a rule values are pickled when the micro-batch ends: a key that many tuples change is pickled once. While
roots run one by one they are pickled unit by unit, so that a value can go back to what it was, also one that
was changed in place; and so that a value that cannot be kept is found where it was put.
"""

import pickle
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from typing import Any, Final

from kinesis_spout.model.errors import InvalidConfig, StateUnreadable
from kinesis_spout.storm.components.open_windows import OpenWindows
from kinesis_spout.storm.components.tuples import try_unpickling, why_not
from kinesis_spout.storm.graph.grouping import stable_hash

PICKLE_PROTOCOL: Final = 5
DELETED: Final = object()
_ABSENT: Final = object()
_PLAIN: Final = frozenset((str, bytes, int, bool, type(None)))
"""The types of keys that need no further look."""
_PLAIN_VALUES: Final = _PLAIN | {float}
_CAN_BE_READ: Final = _PLAIN_VALUES | {OpenWindows}
"""The types of values that can be unpickled if they can be pickled. What is in windows was unpickled when it came
here: unpickling it again would cost as much as to pickle it."""


_MOVED: Final = {"kinesis_spout.topology.components.open_windows": OpenWindows.__module__}
"""The new names of modules, by the old names that are in stored values."""


class UnfitValue(Exception):  # noqa: N818 - what was found; the runner says what follows
    """A bolt has left a value in its state that cannot be pickled, or not be unpickled."""


class PartitionState:
    """Implements ``KeyValueState``. Mutable; of one task.

    A key of one grouping field is its value; ``(value,)`` means the same, and must be written where the value
    is a tuple itself.
    """

    __slots__ = ("_due_at", "_index", "_parallelism", "changes", "kept", "log", "stored", "unreadable")

    def __init__(self, index: int, parallelism: int) -> None:
        self._index = index
        self._parallelism = parallelism
        self.stored: dict[Any, bytes] = {}
        self.changes: dict[Any, Any] = {}
        """What this micro-batch has put, by key; ``DELETED`` where it has deleted."""
        self.log: list[tuple[Any, Any]] = []
        """What changed since it was last cleared: keys, each with what ``changes`` had of it before."""
        self.kept: dict[Any, bytes | None] | None = None
        """The changes that stand, pickled; None until ``changed`` is asked, or ``begin_unit`` was called."""
        self._due_at: dict[Any, tuple[bytes, float]] = {}
        """When stored values are due, by key: what was pickled, and the answer for it. See ``due_keys``."""
        self.unreadable: StateUnreadable | None = None
        """Why a stored value could not be read. It fails no record: the micro-batch must not count."""

    def get(self, key: Any, default: Any = None) -> Any:
        value = self.changes.get(key, _ABSENT)
        if value is _ABSENT:
            pickled = self.stored.get(key)
            if pickled is not None:
                return self._read(key, pickled)
            own = self._own(key)
            return self.get(own, default) if own is not key else default
        if value is DELETED:
            return default
        if type(value) not in _CAN_BE_READ:
            self.log.append((key, value))  # It can be changed in place.
        return value

    def put(self, key: Any, value: Any) -> None:
        changes = self.changes
        if key not in changes and key not in self.stored:
            key = self._own(key)
        self.log.append((key, changes.get(key, _ABSENT)))
        changes[key] = value

    def delete(self, key: Any) -> None:
        self.put(key, DELETED)

    def undo(self) -> bool:
        """Take back what the log says, and clear it; False if a value could have been changed in place.

        A value that this micro-batch has put is the bolt's own object; only plain values are known to be
        unchanged.
        """
        log, changes = self.log, self.changes
        can = all(
            before is _ABSENT or before is DELETED or type(before) in _PLAIN_VALUES for _, before in log
        )
        for key, before in reversed(log) if can else ():
            if before is _ABSENT:
                del changes[key]
            else:
                changes[key] = before
        log.clear()
        return can

    def begin_unit(self) -> None:
        """From now on, keep or take back the changes of each unit of roots separately."""
        if self.kept is None:
            self.kept = {}
        self.log.clear()

    def pickled_unit(self) -> dict[Any, bytes | None]:
        """Pickle what the unit has changed, to be kept. Raises as ``changed``."""
        return self.pickled({key: self.changes[key] for key, _ in self.log if key in self.changes})

    def keep_unit(self, pickled: Mapping[Any, bytes | None]) -> None:
        kept = self.kept
        assert kept is not None, "it has begun"
        for key, _ in self.log:
            kept.pop(key, None)
        kept.update(pickled)
        self.log.clear()

    def take_unit_back(self) -> None:
        kept, changes = self.kept, self.changes
        assert kept is not None, "it has begun"
        for key in {key for key, _ in self.log}:
            if key not in kept:
                changes.pop(key, None)
            else:
                before = kept[key]
                # It was unpickled when it was found fit.
                changes[key] = DELETED if before is None else pickle.loads(before)  # noqa: S301
        self.log.clear()

    def __contains__(self, key: Any) -> bool:
        return self.get(key, _ABSENT) is not _ABSENT

    def items(self) -> Iterator[tuple[Any, Any]]:
        # A copy: what the caller puts while it iterates must not come a second time.
        changes = dict(self.changes)
        for key, pickled in self.stored.items():
            if key not in changes:
                yield key, self._read(key, pickled)
        for key, value in changes.items():
            if value is not DELETED:
                if type(value) not in _CAN_BE_READ:
                    self.log.append((key, value))  # It can be changed in place.
                yield key, value

    def due_keys(self, now: float, due_at: Callable[[Any], float]) -> list[Any]:
        known, changes = self._due_at, self.changes
        due = [key for key, value in changes.items() if value is not DELETED and due_at(value) <= now]
        for key, pickled in self.stored.items():
            if key in changes:
                continue
            found = known.get(key)
            if found is None or found[0] is not pickled:
                known[key] = found = (pickled, due_at(self._read(key, pickled)))
            if found[1] <= now:
                due.append(key)
        if len(known) > len(self.stored):
            self._due_at = {key: found for key, found in known.items() if key in self.stored}
        return due

    def changed(self) -> dict[Any, bytes | None]:
        """Pickle the changes that are not as stored; None for keys that are deleted.

        UnfitValue: a value cannot be kept. StateUnreadable: the bolt asked for a value that cannot be read.
        """
        if self.unreadable is not None:
            raise self.unreadable
        if self.kept is None:
            self.kept = self.pickled(self.changes)
        return self.kept

    def apply(self, changed: Mapping[Any, bytes | None]) -> None:
        for key, pickled in changed.items():
            if pickled is None:
                self.stored.pop(key, None)
            else:
                self.stored[key] = pickled

    def forget_changes(self) -> None:
        self.changes, self.unreadable, self.kept = {}, None, None
        self.log.clear()

    def _read(self, key: Any, pickled: bytes) -> Any:
        try:
            return read_value(key, pickled)
        except StateUnreadable as error:
            self.unreadable = error
            raise

    def pickled(self, changes: Mapping[Any, Any]) -> dict[Any, bytes | None]:
        changed: dict[Any, bytes | None] = {}
        key = value = None
        try:
            for key, value in changes.items():
                pickled = None if value is DELETED else pickle.dumps(value, PICKLE_PROTOCOL)
                if self.stored.get(key) == pickled:
                    continue
                changed[key] = pickled
                if pickled is not None and type(value) not in _CAN_BE_READ:
                    try_unpickling(pickled)
        except Exception as error:
            raise UnfitValue(
                f"expected a value of its state that can be pickled and unpickled, got {type(value).__name__} "
                f"for the key {key!r} ({type(error).__name__}: {error}); put plain values"
            ) from error
        return changed

    def _own(self, key: Any) -> Any:
        """A key as it is kept. InvalidConfig: it is another task's, NaN, or cannot be pickled."""
        own = kept_key(key)
        if type(own) not in _PLAIN:
            _check_key(own)
        index = task_of(own, self._parallelism)
        if index != self._index:
            raise InvalidConfig(
                f"expected a key of task {self._index} of {self._parallelism}, got {key!r}, which is of "
                f"task {index}: a key must be the values of the fields that the tuple at hand was grouped by, one "
                "value or a tuple of several; a single value that is a tuple itself is written (value,)"
            )
        return own


def read_value(key: Any, pickled: bytes) -> Any:
    """Unpickle a stored value. StateUnreadable: its class is gone, or refuses."""
    try:
        try:
            return pickle.loads(pickled)  # noqa: S301 - written by the user's own bolt
        except ModuleNotFoundError:
            return _MovedNames(BytesIO(pickled)).load()
    except Exception as error:
        raise StateUnreadable(
            f"the value that is stored for the key {key!r} cannot be read: {type(error).__name__}: {error}. "
            "Values are pickled: deploy the classes that they are of, under the names that they had"
        ) from error


class _MovedNames(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        return super().find_class(_MOVED.get(module_name, module_name), global_name)


def _check_key(key: Any) -> None:
    if any(part != part for part in (key if isinstance(key, tuple) else (key,))):  # noqa: PLR0124
        raise InvalidConfig(
            f"expected a key that is equal to itself, got {key!r}: NaN would be a new key each time; put the "
            "tuples that have none under a key of your choice, such as None"
        )
    error = why_not(key)
    if error is not None:
        raise InvalidConfig(
            f"expected a key that can be pickled and unpickled, got {type(key).__name__} "
            f"({type(error).__name__}: {error}); put a plain value, such as text"
        ) from error


def kept_key(key: Any) -> Any:
    """A key as it is kept: a tuple of one value, unless that is a tuple too, as the value."""
    if isinstance(key, tuple) and len(key) == 1 and not isinstance(key[0], tuple):
        return key[0]
    return key


def task_of(key: Any, parallelism: int) -> int:
    """Which task has a key, as ``fields_grouping`` decides. Raises InvalidConfig."""
    return stable_hash(key if isinstance(key, tuple) else (key,)) % parallelism
