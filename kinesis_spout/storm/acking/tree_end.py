"""How a tree ended that was not completed."""

from collections.abc import MutableMapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Self

from kinesis_spout.model.handler import Failure


class Ending(Enum):
    """Why a tree is not done."""

    FAILED = "failed"
    """A bolt failed one of its tuples."""
    TIMED_OUT = "timed out"
    """One of its tuples was neither acked nor failed when the micro-batch ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEnd:
    """The end of one tree."""

    ending: Ending
    component: str
    """Where: who failed the tuple, or who had it when the time was over. "" if nobody has said."""
    failure: Failure

    @classmethod
    def after_time_out(cls, failure: Failure, component: str = "") -> Self:
        """Give the end of a tree that was not complete in time."""
        return cls(ending=Ending.TIMED_OUT, component=component, failure=replace(failure, timed_out=True))

    @property
    def reason(self) -> str:
        """One line that names the component."""
        where = f"{self.component}: " if self.component else ""
        return f"{where}{self.failure.error_text}"

    def __repr__(self) -> str:
        return f"TreeEnd({self.ending.value}, {self.reason!r})"


def note_end(ends: MutableMapping[int, TreeEnd], root: int, end: TreeEnd) -> None:
    """Note that a tree cannot complete.

    The first fail counts; without one, the first time-out; without either, that one of its tuples was put off.
    """
    known = ends.get(root)
    if known is None or _weight(end) > _weight(known):
        ends[root] = end


def _weight(end: TreeEnd) -> int:
    if end.failure.put_off:
        return 0
    return 2 if end.ending is Ending.FAILED else 1
