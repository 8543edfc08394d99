"""``KeyValueState`` of a stateful bolt: what is stored, with the changes of one micro-batch over it.

Stored values are kept as they were pickled. ``get`` of one that this micro-batch has not put gives a new
object each time: so changes in place are forgotten with the micro-batch, unless the value is put.

As a rule values are pickled when the micro-batch ends: a key that many tuples change is pickled once. If work
may have to be taken back (a tick that raises, a group of roots of which one fails) they are pickled before
and after it. So a value can go back to what it was, also one that was changed in place, and a value that
cannot be kept is found where it was put.
"""

import pickle
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kinesis_spout.model.errors import InvalidConfig, StateUnreadable
from kinesis_spout.storm.components.open_windows import OpenWindows, rest_seconds
from kinesis_spout.storm.components.tuples import try_unpickling, why_not
from kinesis_spout.storm.graph.grouping import stable_hash

PICKLE_PROTOCOL: Final = 5
DELETED: Final = object()
_ABSENT: Final = object()
_READ: Final = object()
_PLAIN: Final = frozenset((str, bytes, int, bool, type(None)))
"""The types of keys that need no further look."""
_PLAIN_VALUES: Final = _PLAIN | {float}
_CAN_BE_READ: Final = _PLAIN_VALUES | {OpenWindows}
"""The types of values that can be unpickled if they can be pickled. Values in windows were unpickled when
they came here: unpickling it again would cost as much as to pickle it."""


@dataclass(frozen=True, slots=True)
class ResultKey:
    """Names a result among the keys of a part of the state. No key of a bolt is equal to one."""

    root: int


class Result(NamedTuple):
    """A tuple that a bolt with state has emitted, while its tree is not complete; see ``running.results``."""

    stream: str
    values: Sequence[Any]
    task: int | None
    """The task that it was emitted to, if that was chosen by ``emit_direct``."""
    tries: int = 0
    """The number of times its tree failed."""
    not_before: float | None = None
    """When it is emitted again, in processing time; None: it is sent."""

    def after_failure(self, time: float) -> "Result":
        tries = self.tries + 1
        return self._replace(tries=tries, not_before=time + rest_seconds(tries))


class UnfitValue(Exception):  # noqa: N818 - what was found; the runner says what follows
    """A bolt has left a value in its state, or emitted a result, that cannot be pickled, or not be unpickled."""


class PartitionState:
    """Implements ``KeyValueState``. Mutable; of one task.

    A key of one grouping field is its value; ``(value,)`` means the same, and must be written where the value
    is a tuple itself.
    """

    __slots__ = (
        *("_due_at", "_index", "_parallelism", "_stored_results", "changes"),
        *("_spans", "failed_results", "kept", "log", "stored", "unreadable"),
    )

    def __init__(self, index: int, parallelism: int) -> None:
        self._index = index
        self._parallelism = parallelism
        self.stored: dict[Any, bytes] = {}
        self._stored_results: set[ResultKey] = set()
        """The keys of ``stored`` that are results."""
        self.failed_results = 0
        """The number of results that had failed when the micro-batch began, or have since in a careful run."""
        self.changes: dict[Any, Any] = {}
        """The values that this micro-batch has put, by key; ``DELETED`` where it has deleted."""
        self.log: list[Any] = []
        """The changes since it was last cleared: a key, and what ``changes`` had of it before, and so on. Flat,
        because pairs would cost as much again for the collector of garbage."""
        self._spans: list[tuple[int, int, tuple[int, ...]]] = []
        """In a careful run, of tuples: where their changes and reads begin and end in the log; their roots."""
        self.kept: dict[Any, bytes | None] | None = None
        """The changes that stand, pickled; None until ``keep`` is called. The log has what came after that."""
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
        self._note_read(key, value)
        return value

    def _note_read(self, key: Any, value: Any) -> None:
        if type(value) not in _CAN_BE_READ:
            self.log += (key, value)  # It can be changed in place.
        elif self.kept is not None:
            self.log += (key, _READ)

    def put(self, key: Any, value: Any) -> None:
        changes = self.changes
        if key not in changes and key not in self.stored:
            key = self._own(key)
        log = self.log
        log.append(key)
        log.append(changes.get(key, _ABSENT))
        changes[key] = value

    def delete(self, key: Any) -> None:
        self.put(key, DELETED)

    def _changes_in(self, start: int, end: int | None = None) -> list[tuple[Any, Any]]:
        return list(zip(self.log[start:end:2], self.log[start + 1 : end : 2], strict=True))

    def attribute(self, start: int, roots: tuple[int, ...]) -> None:
        """In a careful run, say whose the changes and reads are that the log has from here on."""
        spans, end = self._spans, len(self.log)
        if spans and spans[-1][1] == start and spans[-1][2] == roots:
            start = spans.pop()[0]
        spans.append((start, end, roots))

    def can_undo(self, since: int = 0) -> bool:
        """True if the changes from a place in the log on can be undone; not if a value may have changed in place.

        A value that this micro-batch has put is the bolt's own object; only plain values are known to be
        unchanged.
        """
        return all(map(_is_known, self.log[since + 1 :: 2]))

    def undo(self, since: int = 0) -> None:
        for key, before in reversed(self._changes_in(since)):
            self._put_back(key, before)
        del self.log[since:]
        while self._spans and self._spans[-1][0] >= since:
            self._spans.pop()

    def spoilt(self, roots: Container[int]) -> set[int]:
        """The roots that have read or changed a key after one of these had changed it, or together with one."""
        keys: set[Any] = set()
        found: set[int] = set()
        for start, end, of_tuple in self._spans:
            touched = set(self.log[start:end:2])
            if not keys.isdisjoint(touched):
                found.update(of_tuple)
            if any(root in roots or root in found for root in of_tuple):
                found.update(root for root in of_tuple if root not in roots)
                keys |= touched
        return found

    def first_changes(self, roots: Container[int]) -> dict[Any, Any] | None:
        """Find what was there before these roots changed it, by key; None if that is not known."""
        found: dict[Any, Any] = {}
        attributed = 0
        for start, end, of_tuple in self._spans:
            attributed += end - start
            if any(root in roots for root in of_tuple):
                for key, before in self._changes_in(start, end):
                    if before is not _READ:
                        found.setdefault(key, before)
        is_known = attributed == len(self.log) and all(map(_is_known, found.values()))
        return found if is_known else None

    def put_back(self, first_changes: Mapping[Any, Any]) -> None:
        for key, before in first_changes.items():
            self._put_back(key, before)

    def _put_back(self, key: Any, before: Any) -> None:
        if before is _ABSENT:
            self.changes.pop(key, None)
        elif before is not _READ:
            self.changes[key] = before

    def keep(self) -> None:
        """Let all changes so far stand. UnfitValue: one of them cannot be kept; then none is."""
        if self.kept is None:
            self.kept = self.pickled(self.changes)
        else:
            self.kept_from(self.pickled_since())
        self._forget_log()

    def pickled_since(self) -> dict[Any, bytes | None]:
        """Pickle what was changed since the last ``keep``. Raises UnfitValue."""
        return self.pickled({key: self.changes[key] for key in self.log[::2] if key in self.changes})

    def kept_from(self, pickled: Mapping[Any, bytes | None]) -> None:
        kept = self.kept
        assert kept is not None, "it has begun"
        for key in self.log[::2]:
            kept.pop(key, None)
        kept.update(pickled)
        self._forget_log()

    def take_back(self) -> None:
        """Forget what was changed since the last ``keep``."""
        kept, changes = self.kept, self.changes
        assert kept is not None, "it has begun"
        for key in set(self.log[::2]):
            if key not in kept:
                changes.pop(key, None)
            else:
                before = kept[key]
                # It was unpickled when it was found fit.
                changes[key] = DELETED if before is None else pickle.loads(before)  # noqa: S301
        self._forget_log()

    def _forget_log(self) -> None:
        self.log.clear()
        self._spans.clear()

    def results(self) -> list[tuple[ResultKey, Result]]:
        changes = self.changes
        found = [(key, value) for key, value in changes.items() if type(key) is ResultKey]
        known = [(key, value) for key, value in found if value is not DELETED]
        stored = (key for key in self._stored_results if key not in changes)
        return known + [(key, self._read(key, self.stored[key])) for key in stored]

    def decide_results(self, failed: Collection[int], time: float) -> None:
        """Forget the results that were sent, but not those in ``failed``. Called before anything is changed.

        ``time``: of the micro-batch that sent them, in processing time.
        """
        results = self.results() if self._stored_results else []
        self.failed_results = len(results)
        for key, result in results:
            if result.not_before is None and key.root in failed:
                self.changes[key] = result.after_failure(time)
            elif result.not_before is None:
                self.changes[key] = DELETED
                self.failed_results -= 1

    def has(self, key: ResultKey) -> bool:
        return self.changes.get(key, self.stored.get(key, DELETED)) is not DELETED

    def __contains__(self, key: Any) -> bool:
        return self.get(key, _ABSENT) is not _ABSENT

    def items(self) -> Iterator[tuple[Any, Any]]:
        # A copy: what the caller puts while it iterates must not come a second time.
        changes = dict(self.changes)
        for key, pickled in self.stored.items():
            if key not in changes and type(key) is not ResultKey:
                yield key, self._read(key, pickled)
        for key, value in changes.items():
            if value is not DELETED and type(key) is not ResultKey:
                self._note_read(key, value)
                yield key, value

    def due_keys(self, now: float, due_at: Callable[[Any], float]) -> list[Any]:
        known, changes, results = self._due_at, self.changes, self._stored_results
        due = [
            key
            for key, value in changes.items()
            if value is not DELETED and type(key) is not ResultKey and due_at(value) <= now
        ]
        for key, pickled in self.stored.items():
            if key in changes or key in results:
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
        self.keep()
        assert self.kept is not None, "it was kept"
        return self.kept

    def apply(self, changed: Mapping[Any, bytes | None]) -> None:
        results = self._stored_results
        for key, pickled in changed.items():
            if pickled is None:
                self.stored.pop(key, None)
            else:
                self.stored[key] = pickled
            if type(key) is ResultKey:
                (results.discard if pickled is None else results.add)(key)

    def forget_stored(self) -> None:
        self.stored, self._stored_results = {}, set()

    def forget_changes(self) -> None:
        self.changes, self.unreadable, self.kept = {}, None, None
        self._forget_log()

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
                f"expected {_what(key)} that can be pickled and unpickled, got {_shown(key, value)} "
                f"({type(error).__name__}: {error}); {'emit' if type(key) is ResultKey else 'put'} plain values"
            ) from error
        return changed

    def _own(self, key: Any) -> Any:
        """A key as it is kept. InvalidConfig: it is another task's, NaN, or cannot be pickled."""
        if type(key) is ResultKey:
            return key
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


def _is_known(before: Any) -> bool:
    return before is _ABSENT or before is DELETED or before is _READ or type(before) in _PLAIN_VALUES


def _what(key: Any) -> str:
    return "values of a window's or a tick's tuple" if type(key) is ResultKey else "a value of its state"


def _shown(key: Any, value: Any) -> str:
    if type(key) is ResultKey:
        return f"one on stream {value.stream!r}"
    return f"{type(value).__name__} for the key {key!r}"


def read_value(key: Any, pickled: bytes) -> Any:
    """Unpickle a stored value. StateUnreadable: its class is gone, or refuses."""
    try:
        return pickle.loads(pickled)  # noqa: S301 - written by the user's own bolt
    except Exception as error:
        raise StateUnreadable(
            f"the value that is stored for the key {key!r} cannot be read: {type(error).__name__}: {error}. "
            "Values are pickled: deploy the classes that they are of, under the names that they had"
        ) from error


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
    """Say which task has a key, as ``fields_grouping`` decides; results are spread. Raises InvalidConfig."""
    if type(key) is ResultKey:
        return key.root % parallelism
    return stable_hash(key if isinstance(key, tuple) else (key,)) % parallelism
