"""Runs a micro-batch until its state holds no trace of a tree that failed."""

from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

from kinesis_spout.topology.acking import TreeEnd

MOST_RUNS = 8
"""After so many runs, each with trees that failed anew, the micro-batch as a whole has failed."""

_Number = TypeVar("_Number", bound=Hashable)


class NeverClean(Exception):  # noqa: N818 - what happened; the runner says what follows
    """In every run of a micro-batch other trees failed after they had changed state."""


def run_until_clean(
    run: Callable[[Mapping[_Number, TreeEnd]], tuple[Mapping[_Number, TreeEnd], set[_Number]]],
) -> Mapping[_Number, TreeEnd]:
    """Run a micro-batch, and again without what failed, until nothing that failed has touched state.

    Args:
        run: runs it without the tuples named. Gives how those ended that did not complete, and which of them
            touched state, by the tuples' numbers. It finds the state as it was before, each time.

    Returns:
        How those tuples ended that did not complete in one of the runs.

    Raises:
        NeverClean: other tuples failed each time.
    """
    refused: dict[_Number, TreeEnd] = {}
    for _ in range(MOST_RUNS):
        ends, touched = run(refused)
        refused |= ends
        if not touched:
            return refused
    raise NeverClean(f"in each of {MOST_RUNS} runs other tuples failed after they had changed state")
