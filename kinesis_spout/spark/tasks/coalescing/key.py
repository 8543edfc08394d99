"""The key that records are coalesced by: found where the records are, on executors and on the driver."""

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Self

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.model.record import Record
from kinesis_spout.spark.pickled_handler import PickledHandler
from shard_state import Order

Key = str | bytes | int | tuple["Key", ...]
KeyFunction = Callable[[Record], Key | None]

PARTITION_KEY: Final = "partition_key"
"""What coalesces by the records' own keys."""

_partition_key_of: Final = attrgetter("partition_key")


@dataclass(frozen=True, slots=True, kw_only=True)
class CoalescingKey:
    """Which records are of one key. Travels to the tasks, and is pickled once per query."""

    function: PickledHandler[KeyFunction] | None
    """The user's; None: the partition key."""

    @classmethod
    def of(cls, coalesce: "str | KeyFunction | None", order: str) -> Self | None:
        """Read the argument ``coalesce`` of a door; None if nothing is coalesced.

        Raises:
            InvalidConfig: it is neither a function nor "partition_key"; or a function, and ``order`` is "key".
        """
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
        """Give the function, to be called for many records. What it is given it may keep or change.

        It raises what the user's function raises, and TypeError for what cannot be a key.
        """
        if self.function is None:
            return _partition_key_of
        return _Checked(self.function.load())

    def line(self, record: Record) -> str | None:
        """Name the line in which later records of the key wait for this one; None: in none. Never raises."""
        try:
            key = self.of_record(record)
        except BaseException:  # noqa: BLE001 - it failed its record, which nothing can wait for then
            return None
        return line_of(key)


def line_of(key: Key | None) -> str | None:
    """Name the line of a key: text is its own name, of any other kind the name tells the kind."""
    return key if key is None or isinstance(key, str) else f"{type(key).__name__}:{key!r}"


def order_with(order: str) -> Order:
    """Tell what waits for a failed record where records are coalesced: at least what is of its key.

    An older record that is retried after a newer one was handled would leave the older state behind.
    """
    return Order.KEY if order == Order.UNORDERED else Order(order)


class _Checked:
    """A user's function, whose keys are checked, and which is given copies (invariant 16)."""

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
