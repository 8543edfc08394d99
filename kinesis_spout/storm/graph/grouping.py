"""Groupings: which tasks of a subscriber get a tuple. Storm's, by their names, and ``rebalance``.

``shuffle``, ``local_or_shuffle`` and ``none`` promise only "some task", so the tuple stays in the process
that made it if it can. The others say which task, so the tuple may have to travel.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol


class CustomGrouping(Protocol):
    """A grouping of the user's own. Pickled to the executors."""

    def choose_tasks(self, tasks: Sequence[int], values: Sequence[Any]) -> Sequence[int]:
        """Choose who gets a tuple.

        Args:
            tasks: the ids of the subscriber's tasks, ascending.
            values: the tuple's.

        Returns:
            Any of these ids; an empty sequence drops the tuple for this subscriber.
        """
        ...


class GroupingKind(Enum):
    """How tasks are chosen."""

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
    """One subscription's way to choose tasks."""

    kind: GroupingKind
    fields: tuple[str, ...] = ()
    """Of FIELDS and PARTIAL_KEY: by which the tuples are grouped."""
    custom: CustomGrouping | None = None

    def told(self) -> tuple[str, tuple[str, ...]]:
        """Give it as a task is told of it: its name and its fields."""
        return self.kind.value, self.fields

    def __str__(self) -> str:
        if self.fields:
            return f"{self.kind.value} by {', '.join(self.fields)}"
        if self.custom is not None:
            return f"{self.kind.value} {type(self.custom).__name__}"
        return self.kind.value
