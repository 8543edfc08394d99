"""Decides how a micro-batch is run, so that a tree that failed leaves no trace in the state.

At first all its roots run at once, in many processes. A tuple that fails where it has changed state is undone
there. If a tree has failed that also changed state elsewhere, nobody can undo it alone, and nothing of what the
micro-batch has changed counts. It is run again, *one by one* (see ``stage.one_by_one``), and only what happens
then decides, because what failed before may have failed for what was undone. That always comes to an end.

Where that happens at a rate, most runs at once are in vain. So after one of them the next micro-batches are run
one by one from the start: one after the first time in vain, then twice as many each time, and fewer after each run
at once that counted.
"""

from collections.abc import Iterable
from typing import Final

from kinesis_spout.storm.running.blocks import Block, ChangesDoNotCount

MOST_ONE_BY_ONE: Final = 64
"""Micro-batches, before it is tried again to run one at once."""


def counts(found: Iterable[Block]) -> bool:
    """Tell whether what a run has changed of the state may count."""
    return not any(isinstance(block, ChangesDoNotCount) for block in found)


class RunChoice:
    """How the next micro-batch is run. Mutable."""

    def __init__(self) -> None:
        self._left = 0
        self._next_time = 1

    @property
    def is_one_by_one(self) -> bool:
        """Whether its roots are run one by one from the start."""
        return self._left > 0

    def ran_at_once(self, *, counted: bool) -> None:
        """Take in how a run of all roots at once has ended."""
        if counted:
            self._next_time = max(1, self._next_time // 2)
        else:
            self._left = self._next_time
            self._next_time = min(2 * self._next_time, MOST_ONE_BY_ONE)

    def ran_one_by_one(self, *, failed: bool) -> None:
        """Take in that a micro-batch was run one by one from the start, and whether something failed."""
        self._left = self._left - 1 if failed else 0
