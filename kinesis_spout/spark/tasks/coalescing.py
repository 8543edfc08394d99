"""Which records are coalesced: their key, found on executors and on the driver, and each record's stand-in.

A window is written to the task's journal before its first record is handled: so a worker that dies leaves its
stand-ins behind, and nothing is acked whose stand-in had not finished.
"""

from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, Self

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.model.handler import Failure, failure_of
from kinesis_spout.model.record import Record
from kinesis_spout.spark.pickled_handler import PickledHandler
from shard_state import Order

Key = str | bytes | int | tuple["Key", ...]
KeyFunction = Callable[[Record], Key | None]

PARTITION_KEY: Final = "partition_key"
"""Coalesces by the records' own keys."""

_partition_key_of: Final = attrgetter("partition_key")


@dataclass(frozen=True, slots=True, kw_only=True)
class CoalescingKey:
    """Which records share a key. Travels to the tasks, and is pickled once per query."""

    function: PickledHandler[KeyFunction] | None
    """The user's; None: the partition key."""

    @classmethod
    def of(cls, coalesce: "str | KeyFunction | None", order: str) -> Self | None:
        """None if nothing is coalesced. Raises InvalidConfig, also for a function with ``order`` "key"."""
        if coalesce is None:
            return None
        if coalesce == PARTITION_KEY:
            return cls(function=None)
        if isinstance(coalesce, str) or not callable(coalesce):
            raise InvalidConfig(
                f'coalesce: expected "{PARTITION_KEY}", or a function that gives the key of a record, got '
                f"{coalesce!r}"
            )
        if order == Order.KEY:
            raise InvalidConfig(
                "coalesce: expected `order=unordered` or `order=shard` with a function, got order='key', which is "
                "about partition keys: leave `order` out, for later records of a coalescing key wait for a failed "
                f'one anyway; or use coalesce="{PARTITION_KEY}"'
            )
        return cls(function=PickledHandler.of(coalesce))

    @property
    def of_record(self) -> KeyFunction:
        """Raises the user's errors, and TypeError for an invalid key. It may change its argument."""
        if self.function is None:
            return _partition_key_of
        return _Checked(self.function.load())

    def line(self, record: Record) -> str | None:
        """The line in which later records of the key wait for this one; None: in none. Never raises."""
        try:
            key = self.of_record(record)
        except BaseException:  # noqa: BLE001 - it failed its record, which nothing can wait for then
            return None
        return line_of(key)


def line_of(key: Key | None) -> str | None:
    """A text key is its own line; the line of any other key includes its kind."""
    return key if key is None or isinstance(key, str) else f"{type(key).__name__}:{key!r}"


def order_with(order: str | Order) -> Order:
    """At least of the key: an older record retried after a newer one would leave the older state behind."""
    return Order.KEY if order == Order.UNORDERED else Order(order)


class _Checked:
    """Checks the keys of a user's function, and gives it copies (invariant 16)."""

    def __init__(self, function: KeyFunction) -> None:
        self._function = function

    def __call__(self, record: Record) -> Key | None:
        key = self._function(record.__copy__())
        if type(key) is not str and key is not None:
            _check(key)
        return key


def _check(key: object) -> None:
    parts = key if isinstance(key, tuple) else (key,)
    for part in parts:
        if isinstance(part, tuple):
            _check(part)
        elif not isinstance(part, (str, bytes, int)):
            raise TypeError(
                "coalesce: expected a key that is a str, bytes, an int, a tuple of these, or None for a record to "
                f"be handled always, got {type(part).__name__}"
            )


WAITS: Final = -1
"""No stand-in: an earlier record of the key failed before this window, and must come first."""
_HAS_NO_KEY: Final = -2
"""No stand-in: the user's function raised. That fails the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoalescingWindow:
    """Consecutive records of a slice, and what is done with each."""

    base: int
    """How many records of the slice come before."""
    stand_ins: "array[int]"
    """By a record's position in the window: the position of the record handled for it, possibly its own."""
    failures: Mapping[int, Failure] = field(default_factory=dict)
    """Of the records without a key, by position."""

    @classmethod
    def of_all(cls, size: int, base: int) -> Self:
        return cls(base=base, stand_ins=array("i", range(size)))

    @property
    def handed(self) -> list[int]:
        return [at for at, stand_in in enumerate(self.stand_ins) if at == stand_in]


def window_of(
    records: Sequence[Record], base: int, key_of: KeyFunction, waiting: Collection[str]
) -> CoalescingWindow | None:
    """None if every record is to be handled. ``base`` records of the slice come before."""
    keys, failures = _keys(records, key_of)
    if not (failures or waiting) and len(set(keys)) == len(keys):
        return None
    newest = dict(zip(keys, range(len(keys)), strict=True))
    if not (failures or waiting) and None not in newest:
        return CoalescingWindow(base=base, stand_ins=array("i", map(newest.__getitem__, keys)))
    blocked = {key for key in newest if line_of(key) in waiting} if waiting else frozenset()
    stand_ins = array("i", range(len(keys)))
    for at, key in enumerate(keys):
        if at in failures:
            stand_ins[at] = _HAS_NO_KEY
        elif key is not None:
            stand_ins[at] = WAITS if key in blocked else newest[key]
    if stand_ins == array("i", range(len(keys))):
        return None
    return CoalescingWindow(base=base, stand_ins=stand_ins, failures=failures)


def _keys(records: Sequence[Record], key_of: KeyFunction) -> tuple[list[Key | None], dict[int, Failure]]:
    try:
        return list(map(key_of, records)), {}
    except BaseException:  # noqa: BLE001 - one of them has no key: find which
        keys: list[Key | None] = []
    failures: dict[int, Failure] = {}
    for at, record in enumerate(records):
        try:
            keys.append(key_of(record))
        except BaseException as error:  # noqa: BLE001 - whatever it raises fails its record
            keys.append(None)
            failures[at] = failure_of(error)
    return keys, failures


class CoalescingWindows:
    """Mutable. Handlers number only the records they get; ``index_of`` makes these the slice's indices."""

    def __init__(self, windows: Iterable[CoalescingWindow] = ()) -> None:
        self.stand_ins: dict[int, int] = {}
        """Of the records that were not handed over, by index in the slice: the stand-in's index, or WAITS."""
        self.failures: dict[int, Failure] = {}
        """Of the records without a key, by their index in the slice."""
        self._index_of: dict[int, int] = {}
        for window in windows:
            self._add(window)

    def index_of(self, noted: int) -> int:
        return self._index_of.get(noted, noted)

    def _add(self, window: CoalescingWindow) -> None:
        base = window.base
        for number, at in enumerate(window.handed):
            self._index_of[base + number] = base + at
        for at, stand_in in enumerate(window.stand_ins):
            if stand_in == WAITS:
                self.stand_ins[base + at] = WAITS
            elif stand_in not in {_HAS_NO_KEY, at}:
                self.stand_ins[base + at] = base + stand_in
        for at, failure in window.failures.items():
            self.failures[base + at] = failure
