"""Chooses the tasks that get a tuple, for each grouping that is not "the one at hand"."""

from collections.abc import Callable, Sequence
from itertools import cycle
from operator import itemgetter
from typing import Any, Final
from zlib import crc32

from kinesis_spout.errors import InvalidConfig
from kinesis_spout.topology.components.output import Stream
from kinesis_spout.topology.graph.grouping import CustomGrouping, Grouping, GroupingKind
from kinesis_spout.topology.graph.stable_hash import stable_hash

_MOST_KEYS: Final = 100_000
"""Keys whose tasks are remembered; with one more, all are forgotten and worked out anew."""
_OTHER_CHOICE: Final = b"the other one of two"

Choose = Callable[[Sequence[Any]], Sequence[int]]
"""Gives the indexes, among the subscriber's tasks, of those that get a tuple with these values."""


def chooser(grouping: Grouping, stream: Stream, tasks: Sequence[int], at_hand: int) -> Choose:
    """Make the choice of a grouping.

    Args:
        grouping: of the subscription.
        stream: what is subscribed to.
        tasks: the ids of the subscriber's tasks, ascending.
        at_hand: where to begin if any task will do, so that not everyone begins with the same.
    """
    count = len(tasks)
    match grouping.kind:
        case GroupingKind.FIELDS:
            return _ByKey(_places(grouping, stream), lambda key: (stable_hash(key) % count,))
        case GroupingKind.PARTIAL_KEY:
            return _LessLoaded(_places(grouping, stream), count)
        case GroupingKind.ALL:
            everyone = tuple(range(count))
            return lambda _: everyone
        case GroupingKind.GLOBAL:
            return lambda _: (0,)
        case GroupingKind.CUSTOM:
            assert grouping.custom is not None
            return _Custom(grouping.custom, tasks)
        case _:
            turns = cycle([((at_hand + index) % count,) for index in range(count)])
            return lambda _: next(turns)


def _places(grouping: Grouping, stream: Stream) -> list[int]:
    return [stream.fields.index(field) for field in grouping.fields]


class _ByKey:
    """Remembers what was chosen for a key. Mutable.

    Args:
        places: of the values that the key is made of.
        choose: is given the key as a tuple.
    """

    def __init__(self, places: Sequence[int], choose: Callable[[tuple[Any, ...]], tuple[int, ...]]) -> None:
        self._pick = itemgetter(*places)
        self._is_one = len(places) == 1
        self._choose = choose
        self._known: dict[Any, tuple[int, ...]] = {}

    def __call__(self, values: Sequence[Any]) -> tuple[int, ...]:
        picked = self._pick(values)
        try:
            return self._known[picked]
        except KeyError:
            if len(self._known) >= _MOST_KEYS:
                self._known.clear()
            chosen = self._known[picked] = self._choose((picked,) if self._is_one else picked)
            return chosen
        except TypeError:  # Python cannot hash it. What can be grouped by nevertheless, stable_hash knows.
            return self._choose((picked,) if self._is_one else picked)


class _LessLoaded:
    """Of the two tasks that a key may go to, the one that got less from here. Mutable."""

    def __init__(self, places: Sequence[int], tasks: int) -> None:
        self._two = _ByKey(places, lambda key: _two_choices(key, tasks))
        self._sent = [0] * tasks

    def __call__(self, values: Sequence[Any]) -> tuple[int, ...]:
        one, other = self._two(values)
        chosen = one if self._sent[one] <= self._sent[other] else other
        self._sent[chosen] += 1
        return (chosen,)


def _two_choices(key: tuple[Any, ...], tasks: int) -> tuple[int, int]:
    """Give two different tasks, if there are two."""
    first = stable_hash(key)
    others = max(1, tasks - 1)
    return first % tasks, (first + 1 + crc32(_OTHER_CHOICE, first) % others) % tasks


class _Custom:
    """The user's choice, by task ids."""

    def __init__(self, grouping: CustomGrouping, tasks: Sequence[int]) -> None:
        self._grouping = grouping
        self._tasks = tuple(tasks)
        self._index = {task: index for index, task in enumerate(tasks)}

    def __call__(self, values: Sequence[Any]) -> list[int]:
        chosen = self._grouping.choose_tasks(self._tasks, values)
        try:
            return [self._index[task] for task in chosen]
        except (KeyError, TypeError):
            raise InvalidConfig(
                f"expected choose_tasks of {type(self._grouping).__name__} to give a sequence of ids of tasks "
                f"({', '.join(map(str, self._tasks))}), got {chosen!r}"
            ) from None
