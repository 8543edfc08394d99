"""Runs a micro-batch until its state holds no trace of a tree that failed."""

from collections.abc import Callable, Hashable, Mapping
from collections.abc import Set as AbstractSet
from typing import Generic, NamedTuple, TypeVar

from kinesis_spout.topology.acking import TreeEnd

MOST_RUNS = 8
"""After so many runs, each with trees that failed anew, the micro-batch as a whole has failed."""

_Number = TypeVar("_Number", bound=Hashable)


class NeverClean(Exception):  # noqa: N818 - what happened; the runner says what follows
    """In every run of a micro-batch other trees failed after they had changed state."""


class Ran(NamedTuple, Generic[_Number]):
    """What came of one run of a micro-batch."""

    ends: Mapping[_Number, TreeEnd]
    """How those trees ended that did not complete, by the numbers of their tuples."""
    touched: AbstractSet[_Number]
    """Which of those came to state."""
    is_unfit: bool
    """Whether a bolt has left in its state what cannot be kept: see ``CheckedState``."""


def run_until_clean(
    run: Callable[[Mapping[_Number, TreeEnd], bool], Ran[_Number]],
) -> Mapping[_Number, TreeEnd]:
    """Run a micro-batch, and again without what failed, until nothing that failed has touched state.

    Args:
        run: runs it without the tuples named; if so told, it fails those that put into state what cannot be kept.
            It finds the state as it was before, each time.

    Returns:
        How those tuples ended that did not complete in one of the runs.

    Raises:
        NeverClean: other tuples failed each time.
    """
    refused: dict[_Number, TreeEnd] = {}
    checks_state = False
    for _ in range(MOST_RUNS):
        ran = run(refused, checks_state)
        refused |= ran.ends
        if not ran.touched and not ran.is_unfit:
            return refused
        checks_state = checks_state or ran.is_unfit
    raise NeverClean(f"in each of {MOST_RUNS} runs other tuples failed after they had changed state")
