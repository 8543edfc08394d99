"""How often what can fail does so by chance: ``5%``, ``0.1%,30%``, or ``mixed``: the usual rates in turn."""

from collections.abc import Sequence
from random import Random
from typing import Final

MIXED: Final = (0.001, 0.01, 0.05, 0.30)


def failure_rates(text: str) -> tuple[float, ...]:
    """Read them from a command line.

    Raises:
        ValueError: they are none.
    """
    if text == "mixed":
        return MIXED
    rates = tuple(float(each.removesuffix("%")) / 100 for each in text.split(","))
    if not all(0 <= rate < 1 for rate in rates):
        raise ValueError(f'expected rates from 0% to less than 100%, or "mixed", got {text}')
    return rates


def named(rate: float) -> str:
    return f"{100 * rate:g} %"


def failures_in_a_row(random: Random, rate: float, most: int) -> int:
    """Draw how often something fails before it works, if it fails at this rate each time; ``most`` at most."""
    count = 0
    while count < most and random.random() < rate:
        count += 1
    return count


def in_turn(rates: Sequence[float], number: int, each: int) -> float:
    """Give the rate for a record by its number, when so many records in a row have one rate."""
    return rates[number // each % len(rates)]
