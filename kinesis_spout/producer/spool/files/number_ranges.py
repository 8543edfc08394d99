"""Sums up numbers as ranges: what is confirmed was mostly taken over one after the other."""

from collections.abc import Collection, Iterator


def number_ranges(numbers: Collection[int]) -> Iterator[tuple[int, int]]:
    """Give the runs of consecutive numbers as first and last, in order."""
    ordered = sorted(numbers)
    if not ordered:
        return
    first = last = ordered[0]
    for number in ordered[1:]:
        if number != last + 1:
            yield first, last
            first = number
        last = number
    yield first, last
