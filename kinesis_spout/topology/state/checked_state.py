"""The state that bolts are given in a run that finds out which tuples have put what cannot be kept.

As a rule values are pickled when the micro-batch ends: a key that many tuples change is pickled once. If that
fails, nobody knows whose tuple is to blame, so the micro-batch runs once more, with this around the state. It is
looked at after each call of the bolt. What cannot be kept then is taken back, so that no later call is blamed.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from kinesis_spout.topology.state.key_values import (
    DELETED,
    PartitionState,
    UnfitValue,
    kept_key,
)

_AS_STORED: Final = object()


class CheckedState:
    """Implements ``KeyValueState``. Mutable; of one task, for one run of a micro-batch.

    Args:
        state: which it is around.
    """

    def __init__(self, state: PartitionState) -> None:
        self._state = state
        self._used: set[Any] = set()
        """The keys that a call may have changed since the last look, also by a change in place."""
        self._fit: dict[Any, bytes | None] = {}
        """What was found fit of the changes, pickled; None for keys that are deleted."""

    def get(self, key: Any, default: Any = None) -> Any:
        """See ``KeyValueState``."""
        value = self._state.get(key, default)
        self._used.add(kept_key(key))
        return value

    def put(self, key: Any, value: Any) -> None:
        """See ``KeyValueState``."""
        self._state.put(key, value)
        self._used.add(kept_key(key))

    def delete(self, key: Any) -> None:
        """See ``KeyValueState``."""
        self.put(key, DELETED)

    def __contains__(self, key: Any) -> bool:
        return key in self._state

    def items(self) -> Iterator[tuple[Any, Any]]:
        """See ``KeyValueState``."""
        self._used.update(self._state.changes)
        return self._state.items()

    def due_keys(self, now: float, due_at: Callable[[Any], float]) -> list[Any]:
        """See ``TimedState``."""
        return self._state.due_keys(now, due_at)

    def take_back(self) -> str | None:
        """Take back what cannot be kept of the keys used since the last look; say why, if there is any."""
        used, self._used = self._used, set()
        return self._look_at(used)

    def take_back_all(self) -> str | None:
        """Take back what cannot be kept of all that the micro-batch has changed; say why, if there is any."""
        return self._look_at(list(self._state.changes))

    def _look_at(self, keys: Iterable[Any]) -> str | None:
        reason = None
        for key in keys:
            if key not in self._state.changes:
                continue
            fit = self._fit.pop(key, _AS_STORED)
            try:
                self._fit.update(self._state.changed_of(key))
            except UnfitValue as error:
                reason = reason or str(error)
                self._restore(key, fit)
        return reason

    def _restore(self, key: Any, fit: Any) -> None:
        if fit is _AS_STORED:
            del self._state.changes[key]
            return
        self._fit[key] = fit
        # It was unpickled when it was found fit.
        self._state.changes[key] = DELETED if fit is None else pickle.loads(fit)  # noqa: S301


def checked(open_state: Callable[[str, int], PartitionState]) -> Callable[[str, int], CheckedState]:
    """Give what opens the state of a task, checked."""
    return lambda component, index: CheckedState(open_state(component, index))
