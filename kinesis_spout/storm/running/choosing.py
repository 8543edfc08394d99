"""Chooses the tasks that get a tuple, for each grouping that is not "the one at hand"."""

from collections.abc import Callable, Sequence
from itertools import cycle
from operator import itemgetter
from typing import Any, Final, TypeVar
from zlib import crc32

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.storm.components.tuples import Stream
from kinesis_spout.storm.graph.grouping import CustomGrouping, Grouping, GroupingKind, stable_hash
from kinesis_spout.storm.running.collecting import Choose, Target

_MOST_KEYS: Final = 100_000
"""Keys whose tasks are remembered; with one more, all are forgotten and chosen again."""
_OTHER_CHOICE: Final = b"the other one of two"

_Chosen = TypeVar("_Chosen")


def chooser(grouping: Grouping, stream: Stream, targets: Sequence[Target], at_hand: int) -> Choose:
    """Make the choice of a grouping among the subscriber's tasks, by ascending ids.

    ``at_hand`` is where to begin if any task will do, so that not everyone begins with the same.
    """
    count = len(targets)
    places = [stream.fields.index(field) for field in grouping.fields]
    alone = [(target,) for target in targets]
    match grouping.kind:
        case GroupingKind.FIELDS:
            return _by_key(places, lambda key: alone[stable_hash(key) % count])
        case GroupingKind.PARTIAL_KEY:
            return _less_loaded(places, alone)
        case GroupingKind.ALL:
            everyone = tuple(targets)
            return lambda _: everyone
        case GroupingKind.GLOBAL:
            return lambda _: alone[0]
        case GroupingKind.CUSTOM:
            assert grouping.custom is not None
            return _custom(grouping.custom, targets)
        case _:  # REBALANCE, or one that stays, where the bolt is of a later stage.
            turns = cycle([alone[(at_hand + index) % count] for index in range(count)])
            return lambda _: next(turns)


def _by_key(
    places: Sequence[int], choose: Callable[[tuple[Any, ...]], _Chosen]
) -> Callable[[Sequence[Any]], _Chosen]:
    pick, is_one = itemgetter(*places), len(places) == 1
    known: dict[Any, _Chosen] = {}

    def chosen(values: Sequence[Any]) -> _Chosen:
        picked = pick(values)
        try:
            return known[picked]
        except KeyError:
            if len(known) >= _MOST_KEYS:
                known.clear()
            made = known[picked] = choose((picked,) if is_one else picked)
            return made
        except TypeError:  # Python cannot hash it. What can be grouped by nevertheless, stable_hash knows.
            return choose((picked,) if is_one else picked)

    return chosen


def _less_loaded(places: Sequence[int], alone: Sequence[tuple[Target]]) -> Choose:
    two = _by_key(places, lambda key: _two_choices(key, len(alone)))
    sent = [0] * len(alone)

    def chosen(values: Sequence[Any]) -> Sequence[Target]:
        one, other = two(values)
        at = one if sent[one] <= sent[other] else other
        sent[at] += 1
        return alone[at]

    return chosen


def _two_choices(key: tuple[Any, ...], tasks: int) -> tuple[int, int]:
    first = stable_hash(key)
    others = max(1, tasks - 1)
    return first % tasks, (first + 1 + crc32(_OTHER_CHOICE, first) % others) % tasks


def _custom(grouping: CustomGrouping, targets: Sequence[Target]) -> Choose:
    by_task = {target[0]: target for target in targets}
    tasks = tuple(by_task)

    def chosen(values: Sequence[Any]) -> Sequence[Target]:
        found = grouping.choose_tasks(tasks, values)
        try:
            return [by_task[task] for task in found]
        except (KeyError, TypeError):
            raise InvalidConfig(
                f"expected choose_tasks of {type(grouping).__name__} to give a sequence of ids of tasks "
                f"({', '.join(map(str, tasks))}), got {found!r}"
            ) from None

    return chosen
