"""The state that bolts are given while roots run one by one: what a root changed is kept, or taken back.

As a rule values are pickled when the micro-batch ends: a key that many tuples change is pickled once. Here they
are pickled root by root, so that a value can go back to what it was, also one that was changed in place; and so
that a value that cannot be kept is found where it was put.
"""

import pickle
from collections.abc import Callable, Iterator
from typing import Any, Final

from kinesis_spout.storm.state.key_values import DELETED, PartitionState, kept_key

_AS_STORED: Final = object()


class ReversibleState:
    """Implements ``TimedState``. Mutable; of one task, for one micro-batch.

    Args:
        state: which it is around.
    """

    def __init__(self, state: PartitionState) -> None:
        self._state = state
        self._used: set[Any] = set()
        """The keys that may have changed since ``keep`` or ``take_back``, also by a change in place."""
        self._kept: dict[Any, bytes | None] = {}
        """What stands of the changes, pickled; None for keys that are deleted."""
        state.kept = self._kept
        self._pickled: dict[Any, bytes | None] = {}

    def get(self, key: Any, default: Any = None) -> Any:
        value = self._state.get(key, default)
        self._used.add(kept_key(key))
        return value

    def put(self, key: Any, value: Any) -> None:
        self._state.put(key, value)
        self._used.add(kept_key(key))

    def delete(self, key: Any) -> None:
        self.put(key, DELETED)

    def __contains__(self, key: Any) -> bool:
        return key in self._state

    def items(self) -> Iterator[tuple[Any, Any]]:
        self._used.update(self._state.changes)
        return self._state.items()

    def due_keys(self, now: float, due_at: Callable[[Any], float]) -> list[Any]:
        return self._state.due_keys(now, due_at)

    @property
    def is_used(self) -> bool:
        """Whether something may have changed."""
        return bool(self._used)

    def pickle(self) -> None:
        """Pickle what was changed, to be kept.

        Raises:
            UnfitValue: a value cannot be kept.
        """
        state, pickled = self._state, self._pickled
        pickled.clear()
        for key in self._used:
            if key in state.changes:
                pickled.update(state.changed_of(key))

    def keep(self) -> None:
        """Have stand what was pickled."""
        for key in self._used:
            self._kept.pop(key, None)
        self._kept.update(self._pickled)
        self._used.clear()
        self._state.log.clear()

    def take_back(self) -> None:
        """Have every value be again what it was when ``keep`` was called last."""
        changes = self._state.changes
        for key in self._used:
            if key not in changes:
                continue
            kept = self._kept.get(key, _AS_STORED)
            if kept is _AS_STORED:
                del changes[key]
            else:
                # It was unpickled when it was found fit.
                changes[key] = DELETED if kept is None else pickle.loads(kept)  # type: ignore[arg-type] # noqa: S301
        self._used.clear()
        self._state.log.clear()
