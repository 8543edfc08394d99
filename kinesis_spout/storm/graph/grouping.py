"""Groupings: which tasks of a subscriber get a tuple. Storm's, by their names, and ``rebalance``.

``shuffle``, ``local_or_shuffle`` and ``none`` promise only "some task", so the tuple stays in the process
that made it if it can. The others say which task, so the tuple can need to travel; ``chooser`` chooses it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import cycle
from operator import itemgetter
from typing import Any, Final, Protocol, TypeVar
from zlib import crc32

import numpy as np

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.storm.components.tuples import Stream

Send = Callable[[Sequence[Any], int, tuple[int, ...] | None], None]
"""Takes a tuple to one task: its values, root and other roots; see ``Tuple``."""
Target = tuple[int, Send]
Choose = Callable[[Sequence[Any]], Sequence[Target]]


def stable_hash(key: tuple[Any, ...]) -> int:
    """A number from 0 to 2**32 - 1 that depends on the values and their types only.

    Numbers that are equal have the same hash (``1``, ``1.0``, ``True``, ``numpy.int64(1)``), as in Python's
    dictionaries.

    InvalidConfig: a value is of another kind than str, bytes, int, float, None, numpy's of these, and
    tuples.
    """
    value = 0
    for part in key:
        value = crc32(_bytes_of(part), value)
    return value


def _bytes_of(part: Any) -> bytes:
    if isinstance(part, str):
        return b"s" + part.encode("utf-8", "surrogatepass")
    if isinstance(part, (bytes, bytearray)):
        return b"b" + part
    if part is None:
        return b"n"
    if isinstance(part, (int, float)):
        return _of_number(part)
    if isinstance(part, tuple):
        return b"t" + b"".join(len(each).to_bytes(4, "big") + each for each in map(_bytes_of, part))
    return _bytes_of(_of_numpy(part))


def _of_number(part: float) -> bytes:
    if isinstance(part, int) or part.is_integer():
        return b"i" + str(int(part)).encode()
    return b"f" + part.hex().encode()


def _of_numpy(part: Any) -> Any:
    plain = part.item() if isinstance(part, np.generic) else part
    if isinstance(plain, (bool, int, float)) and plain is not part:
        return plain
    raise InvalidConfig(
        f"expected to group by str, bytes, int, float, None, or tuples of these, got {type(part).__name__}: only "
        "those have the same hash in every process; emit it as text, too, and group by that"
    )


class CustomGrouping(Protocol):
    """The user's own grouping. Pickled to the executors."""

    def choose_tasks(self, tasks: Sequence[int], values: Sequence[Any]) -> Sequence[int]:
        """Choose the tasks that get a tuple.

        Args:
            tasks: the ids of the subscriber's tasks, ascending.
            values: the tuple's.

        Returns:
            Any of these ids; an empty sequence drops the tuple for this subscriber.
        """
        ...


class GroupingKind(Enum):
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
        """True if any task will do, so that the one at hand is chosen."""
        return self in (GroupingKind.SHUFFLE, GroupingKind.LOCAL_OR_SHUFFLE, GroupingKind.NONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    kind: GroupingKind
    fields: tuple[str, ...] = ()
    """The fields that FIELDS and PARTIAL_KEY group by."""
    custom: CustomGrouping | None = None

    def told(self) -> tuple[str, tuple[str, ...]]:
        return self.kind.value, self.fields

    def __str__(self) -> str:
        if self.fields:
            return f"{self.kind.value} by {', '.join(self.fields)}"
        if self.custom is not None:
            return f"{self.kind.value} {type(self.custom).__name__}"
        return self.kind.value


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
