"""What is known of a trial once it is over, and what is wrong with it: one sentence each."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from tests.fault.suite.consumers.delivery_log import Entry, Kind
from tests.fault.suite.trials.plan import ALL, PLACES, Door, Phase, Place, TrialRecord

LAST_PLACE: Final[Mapping[Door, Place]] = {
    Door.PLAIN: Place.HANDLER,
    Door.RECORD: Place.HANDLER,
    Door.STRUCTURED: Place.HANDLER,
    Door.ARROW: Place.ROW,
    Door.BATCH: Place.ROW,
    Door.TOPOLOGY: Place.SINK,
}
"""Where a record is handled to the end."""
_PLENTY: Final = 10.0
"""Where so many calls were to fail on average, none fails by chance once in 20,000 runs."""
_ONE_BY_ONE: Final = frozenset({Door.PLAIN, Door.RECORD, Door.STRUCTURED})
"""Doors where no record shares the fate of another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLetter:
    number: int
    attempts: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseResult:
    phase: Phase
    most_seconds: float | None
    """Until nine tenths of the records had an outcome; None: they never had."""
    all_seconds: float | None
    without_outcome: int = 0
    endpoint_faults: Mapping[str, int] = field(default_factory=dict)
    endpoint_chances: float = 0.0
    """How many of its answers were to go wrong on average."""

    @property
    def per_second(self) -> float | None:
        return None if self.most_seconds is None else 0.9 * self.phase.records / max(self.most_seconds, 1e-3)


@dataclass(frozen=True, kw_only=True)
class TrialEvidence:
    door: Door
    ledger: Sequence[TrialRecord]
    """Of what the producer has confirmed."""
    phases: Sequence[PhaseResult] = ()
    entries: Sequence[Entry] = ()
    letters: Sequence[TrialLetter] = ()
    happened: Mapping[str, int] = field(default_factory=dict)
    """Failures by their place."""
    counts: Mapping[str, int] | None = None
    """What a topology has counted; None: it keeps no state, or did not come to an end."""
    unconfirmed: int = 0
    """Records that the producer could not put."""
    on_stream: Mapping[int, int] | None = None
    """How often each record is there; None: nobody looked."""
    puts_lost: int = 0
    """Records put by calls whose answers were lost: so many may be there twice."""
    retry_limit: int = 3
    errors: Sequence[str] = ()

    @property
    def is_of_a_producer(self) -> bool:
        return self.door not in LAST_PLACE

    @cached_property
    def handled(self) -> Counter[int]:
        """How often each record was handled to the end."""
        place = LAST_PLACE.get(self.door)
        return Counter(
            entry.record.sequence
            for entry in self.entries
            if entry.kind is Kind.HANDLED and entry.record.shard == place
        )

    @cached_property
    def lettered(self) -> frozenset[int]:
        return frozenset(letter.number for letter in self.letters)

    def ratio(self, result: PhaseResult) -> float | None:
        """Compare the speed of a phase with that of the calm one."""
        calm = next((each.per_second for each in self.phases if not each.phase.rate), None)
        if calm is None or result.phase.per_second is not None or result.per_second is None:
            return None
        return result.per_second / calm


TrialChecker = Callable[[TrialEvidence], Iterator[str]]


def lost(evidence: TrialEvidence) -> Iterator[str]:
    """Every record was handled to the end or has a letter; what a producer confirmed is on the stream."""
    for record in evidence.ledger:
        if evidence.is_of_a_producer:
            if evidence.on_stream is not None and not evidence.on_stream.get(record.number):
                yield f"record {record.number} was confirmed, and is not on the stream"
        elif not evidence.handled[record.number] and record.number not in evidence.lettered:
            yield f"record {record.number} was never handled, and has no dead letter"


def innocents(evidence: TrialEvidence) -> Iterator[str]:
    """No record has a letter that works in the end."""
    for record in evidence.ledger:
        if not record.is_poison and record.number in evidence.lettered:
            yield f"record {record.number} has a dead letter, and was to fail {record.failures} times only"


def poison(evidence: TrialEvidence) -> Iterator[str]:
    """Each record that always fails has a letter, after as many attempts as it is due."""
    by_number = {letter.number: letter for letter in evidence.letters}
    for record in evidence.ledger:
        letter = by_number.get(record.number)
        if not record.is_poison:
            continue
        if letter is None:
            yield f"record {record.number} fails always, and has no dead letter"
        elif letter.attempts != 1 + evidence.retry_limit or letter.reason != "exhausted":
            yield f"record {record.number} has a letter: {letter.reason} after {letter.attempts} attempts"
    for record in evidence.ledger:
        if record.is_poison and evidence.handled[record.number]:
            yield f"record {record.number} fails always, and was handled"


def attempts(evidence: TrialEvidence) -> Iterator[str]:
    """At doors that hand out one by one a record comes once for each of its failures, and once more."""
    if evidence.door not in _ONE_BY_ONE:
        return
    delivered = Counter(entry.record.sequence for entry in evidence.entries if entry.kind is Kind.DELIVERED)
    for record in evidence.ledger:
        due = 1 + (evidence.retry_limit if record.is_poison else record.failures)
        if delivered[record.number] != due:
            yield f"record {record.number} was delivered {delivered[record.number]} times, and not {due}"


def duplicates(evidence: TrialEvidence) -> Iterator[str]:
    """Nothing comes twice that no failure explains."""
    if evidence.door in _ONE_BY_ONE:
        for number, times in evidence.handled.items():
            if times > 1:
                yield f"record {number} was handled {times} times, and nothing had died"
    if evidence.on_stream is not None:
        again = sum(times - 1 for times in evidence.on_stream.values())
        if again > evidence.puts_lost:
            yield f"{again} records are on the stream again, and the answers of {evidence.puts_lost} were lost"


def counted(evidence: TrialEvidence) -> Iterator[str]:
    """State has each record once, and none that was given up."""
    if evidence.counts is None:
        return
    expected: Counter[str] = Counter()
    for record in evidence.ledger:
        if record.number not in evidence.lettered:
            expected.update([record.word, ALL])
    for word in sorted(expected.keys() | evidence.counts.keys()):
        if evidence.counts.get(word, 0) != expected[word]:
            yield f"{word} was counted {evidence.counts.get(word, 0)} times, and came {expected[word]} times"


def in_time(evidence: TrialEvidence) -> Iterator[str]:
    """Each phase comes to an end, and the door with it."""
    for result in evidence.phases:
        if result.all_seconds is None:
            yield f"{result.phase}: {result.without_outcome} of {result.phase.records} had no outcome in time"
    if evidence.unconfirmed:
        yield f"{evidence.unconfirmed} records could not be put"
    yield from evidence.errors


def happened(evidence: TrialEvidence) -> Iterator[str]:
    """Each kind of failure that was chosen has happened."""
    if not any(result.phase.rate for result in evidence.phases):
        return
    for place in PLACES[evidence.door]:
        if not evidence.happened.get(place):
            yield f"{place}: it never happened"
    chances = sum(result.endpoint_chances for result in evidence.phases)
    if chances >= _PLENTY and not any(result.endpoint_faults for result in evidence.phases):
        yield "no call of Kinesis has failed"


TRIAL_CHECKERS: Final[dict[str, TrialChecker]] = {
    "lost": lost,
    "innocent records dead-lettered": innocents,
    "dead letters": poison,
    "attempts": attempts,
    "unexplained duplicates": duplicates,
    "counted wrongly": counted,
    "not finished in time": in_time,
    "failures that never happened": happened,
}
