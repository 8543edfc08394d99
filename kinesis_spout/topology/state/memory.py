"""Keyed state in memory, for topologies that run without Spark."""

from collections.abc import Iterator
from typing import Any


class MemoryState:
    """``KeyValueState`` on a dictionary, which it changes."""

    def __init__(self, entries: dict[Any, Any]) -> None:
        self._entries = entries

    def get(self, key: Any, default: Any = None) -> Any:
        """See ``KeyValueState``."""
        return self._entries.get(key, default)

    def put(self, key: Any, value: Any) -> None:
        """See ``KeyValueState``."""
        self._entries[key] = value

    def delete(self, key: Any) -> None:
        """See ``KeyValueState``."""
        self._entries.pop(key, None)

    def __contains__(self, key: Any) -> bool:
        return key in self._entries

    def items(self) -> Iterator[tuple[Any, Any]]:
        """See ``KeyValueState``."""
        return iter(self._entries.items())
