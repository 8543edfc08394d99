"""Decides whether a failure is the fault of the record, or of the handler and what it calls.

A failure counts against a record only as far as it is evidence against that record. Call a record *poison* if it
always fails. A good record fails with the handler's own probability ``p``, which is near 0 on a good day, near 1
while the database is down, and anything between in a partial outage. A good record fails ``k`` times in a row with
probability ``p ** k``. So a record is given up once it has failed more often than the retry limit allows *and* ``p
** k`` is below ``ACCEPTED_ERROR``, whatever ``p`` is: that is the share of good records that are given up.

**What p is.** Failures do not tell: poison fails as well. A share ``g * (1 - p)`` of all first tries passes,
where ``g`` is the share of good records. Second tries are made only by records that failed before: a share
``g * p * (1 - p) / (1 - g * (1 - p))`` passes. If the handler is at fault, second tries pass about as often
as first ones; if the records are, next to none pass. So two pairs of counts tell both unknowns apart, also
where most of the stream is poison: ``Counts``. From these follows how probable each pair ``(p, g)`` of a grid
is, by Bayes' rule; that says how sure it is as well, which matters where a record comes every ten seconds.
Later tries say little more, and most of them are made by poison: they are not counted.

**When.** An outage begins from one moment to the next, so only contemporaries are witnesses: the outcomes of
others since the record's first failure. If they say that ``p`` is above one half, its failures up to now are
*spared*: they do not count, and its evidence begins anew. Earlier tries (``recent``, the last 32 first ones
or so) say two things only: the share of the stream that is poison, and whether the handler was well, which is
worth two witnesses.

**Without witnesses** nobody knows, and the longer one waits for them the less the record is worth the wait. A
record is given up when nothing new was tried for a time that grows with the number of different records that
failed in a row: one record is a little suspicious, twenty are an outage. The time is a few times what the retries
themselves take (some 30 s with the default delays), longer where records come slowly, and four times as long for a
record that began to fail after another one was given up in this way and before any passed.

**The bound.** A record is spared for at most ``max_spared_seconds``. With 0 each failure counts and nothing slows
down.

**Pace.** After 32 tries that fail, and none that passes, deliveries slow down: half as many a second for each
eight failures more, down to one in ten seconds; a success makes up for 32 failures. So up to 97 failures of 100
nothing slows down, a handler that is down is hardly troubled, and three successes after its mend let everything
flow. While deliveries are slow, every second one is of a record that never failed, where there is one: only such a
one can show that the handler works if all those that wait are poison.

**After a restart**, or with a new owner, the evidence goes on: ``Experience`` is stored with each checkpoint. A
record that failed before must see its witnesses pass under its new owner, too, for the outage can have begun
meanwhile.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

ACCEPTED_ERROR: Final = 3e-4
"""The share of good records that are given up in an outage, at most."""

_FAILING_SHARES: Final = (0.01, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.98, 0.995)
_GOOD_SHARES: Final = (0.999, 0.97, 0.9, 0.75, 0.55, 0.35, 0.15, 0.05)
_SURPRISE: Final = 0.35
"""The logarithm by which each lower share of good records is less probable before anything is known."""
_WELL: Final = 0.1
"""Below this probability of failure the handler is well."""
_AT_FAULT: Final = 0.5
_WITNESSES_OF_A_GOOD_TIME: Final = 2
_ENOUGH_IN_ROW: Final = 10
"""The number of successes in a row that end the trouble, whatever came before."""
_MEMORY: Final = 31 / 32
"""The part of earlier first tries that is remembered after one more."""
_GAP_MEMORY: Final = 15 / 16
_WEIGHT_OF_RECENT: Final = 0.5
"""The weight, on the share of poison, of what was seen before a record failed."""

_WORTH_OF_A_PASS: Final = 32
"""Failures that one success makes up for; without any, so many slow nothing down."""
_HALVED_BY: Final = 8
_SLOWEST_AT: Final = 62
"""The number of further failures after which a record is tried each ten seconds."""
_FIRST_INTERVAL_SECONDS: Final = 0.05
_FLOWING: Final = -float(_WORTH_OF_A_PASS)
_WEIGHT_OF_A_LATE_TRY: Final = 0.25
"""The weight of a failure after the second: most of them are poison's."""

_MOST_WEIGHED: Final = 64
"""Records that failed together have the same witnesses, which are weighed once."""

_LONGEST_BASE_SECONDS: Final = 15.0
_LONGEST_GAP_SECONDS: Final = 120.0
_GAPS: Final = 10
"""A record without witnesses waits for as long as so many new records take."""
_ROW: Final = 6
"""The number of different records in a row that are no accident, however short the retries are."""
_ROW_SECONDS: Final = 5.0

_STORED_NUMBERS: Final = 8


class Counts(NamedTuple):
    """The outcomes of tries. Fractions, where old ones fade."""

    passed: float = 0.0
    """First tries of a record that passed."""
    failed: float = 0.0
    passed_again: float = 0.0
    """Second tries that passed."""
    failed_again: float = 0.0

    def since(self, mark: "Counts") -> "Counts":
        return Counts(*(max(0.0, now - then) for now, then in zip(self, mark, strict=True)))


class History(NamedTuple):
    """The failures of a record under its present owner."""

    since: float
    """When it failed first; of one of an earlier owner, when it can have done so."""
    seen_at: float
    """When it failed first under the present owner."""
    mark: Counts
    """Its witnesses are those behind this."""
    failures: int = 0
    """The number of failures since."""
    spared: int = 0
    """The number of deliveries that do not count against the retry limit, as the handler was at fault."""
    put_off: int = 0
    """The number that do not count, as its handler did not try it."""
    failed_again: bool = False
    """True if its own second try is among its witnesses."""
    given_up: int = 0
    """The number of records given up without witnesses, in a row, before it failed."""
    begins: Counts | None = None
    """The beginning of the present owner's witnesses, if it failed at an earlier owner."""

    @property
    def uncounted(self) -> int:
        return self.spared + self.put_off


class Experience(NamedTuple):
    """A consumer's stored view of its deliveries, for its next start or the next owner."""

    recent: Counts
    row: float
    """The number of different records that failed at their first try since the last success."""
    gap_seconds: float
    """Between first tries."""
    level: float
    """The level to which deliveries are slowed."""
    trouble_seconds: float
    """For how long the handler has been at fault; 0: it is not."""

    def as_numbers(self) -> list[float]:
        """Give the stored form."""
        return [round(each, 1) for each in (*self.recent, *self[1:])]

    @classmethod
    def of_numbers(cls, numbers: object) -> "Experience":
        """Read the stored form.

        Raises:
            ValueError: that is none.
        """
        if (
            not isinstance(numbers, list)
            or len(numbers) != _STORED_NUMBERS
            or not all(map(_is_number, numbers))
        ):
            raise ValueError(f"expected {_STORED_NUMBERS} numbers of experience, got {numbers!r}")
        recent, row, gap_seconds, level, trouble_seconds = numbers[:4], *numbers[4:]
        return cls(Counts(*(max(0.0, each) for each in recent)), row, gap_seconds, level, trouble_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """The handler, or what it calls, seems to be at fault."""

    failing: float
    """The share of tries of good records that fail, as far as it is known."""
    seconds: float
    """Since when."""
    slowed: bool
    """True if deliveries are slower for it."""


class _Case(NamedTuple):
    """One hypothesis, as logarithms of what it says of each kind of try."""

    failing: float
    first: tuple[float, float]
    second: tuple[float, float]
    before: float
    well: float
    good: tuple[float, float]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _cases() -> Iterator[_Case]:
    for p in _FAILING_SHARES:
        for at, g in enumerate(_GOOD_SHARES):
            first = g * (1 - p)
            second = g * p * (1 - p) / (1 - first)
            yield _Case(
                failing=p,
                first=(math.log(first), math.log(1 - first)),
                second=(math.log(second), math.log(1 - second)),
                before=-_SURPRISE * at,
                well=math.log(1 - p),
                good=(math.log(g), math.log(1 - g)),
            )


_CASES: Final = tuple(_cases())


class Blame:
    """The outcomes of the deliveries of one consumer, and what follows for its records. Mutable; not thread-safe.

    Args:
        max_spared_seconds: for how long a record is spared; 0: never, and nothing slows down.
        retry_seconds: how long the retries of a record take, without jitter.
        limit: how many retries a record has; None: any number.
        by_key: whether a record that failed holds up others of its key or shard.
        by_shard: whether a record that failed holds its whole shard up, so that often nothing else can be tried.
    """

    def __init__(
        self,
        max_spared_seconds: float = 0.0,
        *,
        retry_seconds: float = 0.0,
        limit: int | None = None,
        by_key: bool = False,
        by_shard: bool = False,
    ) -> None:
        self._max_spared_seconds = max_spared_seconds
        self._base_seconds = min(2 * retry_seconds, _LONGEST_BASE_SECONDS)
        self._limit = limit
        self._by_key = by_key
        self._by_shard = by_shard
        self._counts = self._recent = Counts()
        self._weighed: dict[tuple[Counts, Counts | None], list[float]] = {}
        self._row = 0
        """Different records that failed at their first try since the last success."""
        self._passed_in_row = 0.0
        """Tries that passed since the last that failed."""
        self._given_up = 0
        """Records given up without witnesses since then."""
        self._tried_first_at = -math.inf
        self._gap_seconds = 0.0
        """Between first tries, lately."""
        self._is_calm = True
        """True if one more first try that passes changes nothing but the counts."""
        self._uncounted = 0
        """First tries that passed meanwhile."""
        self._uncounted_at = -math.inf
        self._level = _FLOWING
        """The number of failures that the successes do not make up for."""
        self._tried_at = -math.inf
        self._noted_at = -math.inf
        self._trouble_since: float | None = None
        self._inherited_seconds = 0.0
        self.is_slowed = False
        """True if deliveries are slow. A plain attribute: it is looked at for each record."""
        self.fresh_first = False
        """While they are: whether the next one is of a record that never failed, if there is one."""

    # Outcomes of deliveries

    def passed_first(self, now: float, count: int = 1) -> None:
        """Note that ``count`` records were handled by their first delivery."""
        if self._is_calm:
            # Nothing follows from it now. It is taken in with what comes next.
            self._uncounted += count
            self._uncounted_at = now
        else:
            self.note(now, Counts(passed=count))

    def note(self, now: float, counts: Counts, *, passed_late: int = 0, failed_late: int = 0) -> None:
        """Note what deliveries came to that ended together.

        Args:
            now: the time.
            counts: of first and second tries.
            passed_late: how many later tries passed.
            failed_late: how many failed.
        """
        self._take_in()
        self._noted_at = now
        self._add(counts, now)
        passed = counts.passed + counts.passed_again + passed_late
        failed = counts.failed + counts.failed_again + _WEIGHT_OF_A_LATE_TRY * failed_late
        if passed:
            self._row = self._given_up = 0
        else:
            self._row += int(counts.failed)
        if self._max_spared_seconds:
            self._set_level(self._level + failed - _WORTH_OF_A_PASS * passed, now)
        self._passed_in_row = 0 if failed else self._passed_in_row + passed
        may_end = (self.is_troubled or self._inherited_seconds) and not self.is_slowed
        if may_end and (self._passed_in_row >= _ENOUGH_IN_ROW or self._is_well):
            self._trouble_since, self._inherited_seconds = None, 0.0
        self._is_calm = (
            not self._row and not self.is_troubled and not self._inherited_seconds and self._level == _FLOWING
        )

    def _take_in(self) -> None:
        if self._uncounted:
            count, self._uncounted = self._uncounted, 0
            self._add(Counts(passed=count), self._uncounted_at)

    def _add(self, counts: Counts, now: float) -> None:
        first = counts.passed + counts.failed
        remembered = 1.0
        if first:
            if self._tried_first_at > -math.inf:
                gap = min(now - self._tried_first_at, _LONGEST_GAP_SECONDS) / first
                memory = _GAP_MEMORY**first if self._gap_seconds else 0.0
                self._gap_seconds = memory * self._gap_seconds + (1 - memory) * gap
            self._tried_first_at = now
            memory = _MEMORY**first
            self._recent = Counts(*(memory * each for each in self._recent))
            remembered = (1 - memory) / (1 - _MEMORY) / first  # as if they had come one by one, well mixed
        self._counts = Counts(*(old + new for old, new in zip(self._counts, counts, strict=True)))
        self._recent = Counts(
            *(old + remembered * new for old, new in zip(self._recent, counts, strict=True))
        )

    # Verdicts on a record

    def weigh(self, history: History | None, attempt: int, now: float) -> tuple[bool, History]:
        """Decide upon a record that failed, after that was noted.

        Args:
            history: what an earlier call returned, if there was one. Without one, a delivery after the first says
                that the record failed under an earlier owner.
            attempt: which delivery of the record failed.
            now: the time.

        Returns:
            True if it is given up, and its history from now on.
        """
        if history is None:
            history = self._new_history(attempt, now)
        history = history._replace(failures=history.failures + 1)
        if attempt == 2:  # noqa: PLR2004 - the second try
            history = history._replace(failed_again=True)
        limit, tries = self._limit, attempt - history.put_off
        is_over = now >= history.since + self._max_spared_seconds
        if limit is None or (tries - history.spared <= limit and not (history.spared and is_over)):
            return False, history
        if is_over:
            return True, history
        witnesses = self._counts.since(history.mark)
        if history.failed_again:
            witnesses = witnesses._replace(failed_again=max(0.0, witnesses.failed_again - 1))
        is_well = self._is_well
        if any(witnesses) and self._failing(witnesses, is_well=is_well) > _AT_FAULT:
            self._begin_trouble(now)
            again = history._replace(
                mark=self._counts, failures=0, spared=tries, failed_again=False, begins=None
            )
            return False, again
        if self._convicts(history, witnesses, is_well=is_well):
            return True, history
        if now >= max(self._tried_first_at, history.seen_at) + self._patience_seconds(history):
            self._given_up += 1
            return True, history
        # It waits for witnesses. What is stored stays within the limit.
        return False, history._replace(spared=tries - limit)

    def put_off(self, history: History | None, now: float) -> History:
        """Give the history of a record whose handler did not try it."""
        history = history or self._new_history(1, now)
        return history._replace(put_off=history.put_off + 1)

    def _new_history(self, attempt: int, now: float) -> History:
        since = now
        if self._inherited_seconds:  # it can have begun to fail as long ago as the trouble
            since = self._begin_trouble(now)
        if attempt == 1:
            return History(since, now, self._counts, given_up=self._given_up)
        mark = self._counts.since(self._recent)
        return History(since, now, mark, failures=attempt - 1, given_up=self._given_up, begins=self._counts)

    def _convicts(self, history: History, witnesses: Counts, *, is_well: bool) -> bool:
        if not witnesses.passed + witnesses.passed_again:
            return False
        if history.begins is not None:
            of_this_owner = self._counts.since(history.begins)
            if of_this_owner.passed < _WITNESSES_OF_A_GOOD_TIME:
                return False
            if self._failing(of_this_owner, is_well=is_well) > 3 * _WELL:
                return False
        accepted = ACCEPTED_ERROR
        if is_well and self._limit is not None:
            accepted = max(accepted, 0.1 ** (self._limit + 1))  # who wants fewer retries accepts more
        return self._failing(witnesses, is_well=is_well, times=history.failures) <= accepted

    def _patience_seconds(self, history: History) -> float:
        """Tell how long a record without witnesses waits for some since anything was tried for the first time."""
        recent = self._recent
        in_row = float(self._row)
        if self._failing(recent, is_well=False) > 2 * _WELL:
            in_row = max(in_row, recent.failed)
        seconds = self._base_seconds * max(2.0, in_row)
        if in_row >= _ROW and self._by_key:
            return math.inf  # others wait behind them, and each would be given up in turn
        if in_row >= _ROW:
            seconds = max(seconds, _ROW_SECONDS * in_row)
        if not self._by_shard:
            seconds = max(seconds, self._base_seconds / _LONGEST_BASE_SECONDS * _GAPS * self._gap_seconds)
        if recent.failed * 3 < recent.passed:
            seconds *= 4.0**history.given_up
        return seconds

    @property
    def _is_well(self) -> bool:
        return self._failing(self._recent, is_well=False) < _WELL

    def _failing(self, counts: Counts, *, is_well: bool, times: int = 1) -> float:
        """Tell the probability that a good record fails so many ``times``, by what others came to.

        Args:
            counts: of these.
            is_well: whether the handler was well before.
            times: how many.
        """
        recent = self._recent if is_well else None
        weights = self._weighed.get((counts, recent))
        if weights is None:
            if len(self._weighed) >= _MOST_WEIGHED:
                self._weighed.clear()
            weights = self._weighed[counts, recent] = _weights(counts, recent)
        return sum(weight * case.failing**times for weight, case in zip(weights, _CASES, strict=True)) / sum(
            weights
        )

    # Pace

    @property
    def next_try_at(self) -> float:
        """When a record may be handed out next, while deliveries are slow."""
        return self._tried_at + self._interval_seconds

    @property
    def _interval_seconds(self) -> float:
        return _FIRST_INTERVAL_SECONDS * 2 ** (self._level / _HALVED_BY)

    def allowance(self, now: float) -> int:
        """Tell how many records may be handed out now, while deliveries are slow."""
        if self._tried_at == -math.inf:
            return 1
        return int(min(_WORTH_OF_A_PASS, (now - self._tried_at) / self._interval_seconds))

    def tried(self, now: float) -> None:
        """Note that records were handed out."""
        if self.is_slowed:
            self._tried_at = now
            self.fresh_first = not self.fresh_first

    def tried_nothing(self) -> None:
        """Note that what was handed out did not reach the handler: the next may follow at once."""
        self._tried_at = -math.inf

    def resume(self) -> bool:
        """Let deliveries flow, as an operator says; False if they do."""
        was_slowed, self.is_slowed, self._level = self.is_slowed, False, _FLOWING
        return was_slowed

    def _set_level(self, level: float, now: float) -> None:
        self._level = max(_FLOWING, min(_SLOWEST_AT, level))
        self.is_slowed = self._level >= 0
        if self.is_slowed:
            self._begin_trouble(now)

    # For people, and for the next owner

    def trouble(self, now: float) -> Trouble | None:
        if self._trouble_since is None:
            return None
        return Trouble(
            failing=self._failing(self._recent, is_well=False),
            seconds=max(0.0, now - self._trouble_since),
            slowed=self.is_slowed,
        )

    @property
    def is_troubled(self) -> bool:
        return self._trouble_since is not None

    def experience(self) -> Experience | None:
        self._take_in()
        if not self._max_spared_seconds or not any(self._counts):
            return None
        since = self._trouble_since
        return Experience(
            recent=self._recent,
            row=self._row,
            gap_seconds=self._gap_seconds,
            level=self._level,
            trouble_seconds=self._inherited_seconds if since is None else self._noted_at - since,
        )

    def inherit(self, experience: Experience) -> None:
        """Go on from what another owner stored, unless there is experience already."""
        if not any(self._counts) and self._max_spared_seconds:
            self._counts = self._recent = experience.recent
            self._level = max(_FLOWING, min(_SLOWEST_AT, experience.level))
            self._row, self._gap_seconds = int(experience.row), experience.gap_seconds
            self._inherited_seconds = max(0.0, experience.trouble_seconds)
            self.is_slowed, self._is_calm = self._level >= 0, False

    def _begin_trouble(self, now: float) -> float:
        """Note that the handler is at fault, if it was not before; returns since when it is."""
        if self._trouble_since is None:
            self._trouble_since = now - self._inherited_seconds
            self._is_calm = False
        return self._trouble_since


def _weights(counts: Counts, recent: Counts | None) -> list[float]:
    """Tell how probable each of ``_CASES`` is, up to a factor, by what was seen (``recent``: of a good time)."""
    passed, failed, passed_again, failed_again = counts
    well, good, poison = 0.0, 0.0, 0.0
    if recent is not None:
        well = _WITNESSES_OF_A_GOOD_TIME
        good, poison = _WEIGHT_OF_RECENT * recent.passed, _WEIGHT_OF_RECENT * recent.failed_again
    logs = [
        case.before
        + passed * case.first[0]
        + failed * case.first[1]
        + passed_again * case.second[0]
        + failed_again * case.second[1]
        + well * case.well
        + good * case.good[0]
        + poison * case.good[1]
        for case in _CASES
    ]
    most = max(logs)
    return [math.exp(each - most) for each in logs]
