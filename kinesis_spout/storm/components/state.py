"""The state that a ``StatefulBolt`` is given."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol


class KeyValueState(Protocol):
    """One task's part of a bolt's keyed state (Storm's name for it). Values are pickled.

    That happens when the micro-batch ends. A tuple that left a value which cannot be pickled, or not be unpickled,
    then fails, even if it was acked.

    What is put is kept with the checkpoints of the records that it came from, in one transaction, or not at
    all. A key is the values of the fields that the bolt's tuples are grouped by: one value, or a tuple of
    several; any other key may belong to another task, and is refused.
    """

    def get(self, key: Any, default: Any = None) -> Any:
        """Give the value of a key. Change it by ``put``, never in place: that would not be kept."""
        ...

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key.

        Raises:
            InvalidConfig: the key is not of this task.
        """
        ...

    def delete(self, key: Any) -> None:
        """Forget a key, if it is there."""
        ...

    def __contains__(self, key: Any) -> bool: ...

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Give every key of this task with its value as it is now, each once, in no particular order.

        Keys may be put and deleted meanwhile; that does not show here.
        """
        ...


class TimedState(KeyValueState, Protocol):
    """What windowed bolts are given, too."""

    def due_keys(self, now: float, due_at: Callable[[Any], float]) -> list[Any]:
        """Name the keys whose values are due: a tick that closes nothing unpickles nothing.

        Args:
            now: they are due then or before.
            due_at: says when a value is due. Always the same function, of the value alone; of a value that is
                stored it is asked once.
        """
        ...
