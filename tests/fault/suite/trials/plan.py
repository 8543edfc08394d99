"""What is tried: each door, in phases, at a rate of failures and at a pace; and what each record asks for.

A record says how often it fails, and where: what must come of it is known before anything runs.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import Random
from typing import Final, Self

import msgspec

from tests.fault.suite.failure_rates import MIXED, failures_in_a_row, named

RETRY_LIMIT: Final = 3
"""The default of every door. No more failures are drawn for a record, so that none is given up for them."""
POISON_SHARE: Final = 0.02
"""At most; where less fails, fewer are poison."""
WORDS: Final = 20
ALL: Final = "all"
"""A word that each record has beside its own."""
SLOW: Final = 1.0
"""Records a second."""
FULL: Final = None
_SLOW_SECONDS: Final = 8


class Door(StrEnum):
    PLAIN = "plain"
    RECORD = "record"
    ARROW = "arrow"
    BATCH = "batch"
    STRUCTURED = "structured"
    TOPOLOGY = "topology"
    PRODUCER = "producer"
    SPOOL = "spool"
    """A producer with a spool."""


class Place(StrEnum):
    """Where a record fails."""

    HANDLER = "handler raises"
    ROW = "row failed"
    CALL = "whole call raises"
    SPLIT = "bolt raises amid its emits"
    COUNT = "bolt raises after its state"
    SHELL = "shell bolt fails"
    CHILD = "shell child dies"
    SINK = "sink raises"


PLACES: Final[Mapping[Door, Sequence[Place]]] = {
    Door.PLAIN: (Place.HANDLER,),
    Door.RECORD: (Place.HANDLER,),
    Door.ARROW: (Place.ROW, Place.CALL),
    Door.BATCH: (Place.ROW, Place.CALL),
    Door.STRUCTURED: (Place.HANDLER,),
    Door.TOPOLOGY: (Place.SPLIT, Place.COUNT, Place.SHELL, Place.CHILD, Place.SINK),
    Door.PRODUCER: (),
    Door.SPOOL: (),
}
"""None for producers: what fails there is the endpoint."""


class TrialRecord(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    word: str
    is_poison: bool = False
    """Fails always, at the first place of its door."""
    fails: dict[str, int] = {}
    """How often, by the place."""

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes | str) -> Self:
        return msgspec.json.decode(data, type=cls)

    @property
    def failures(self) -> int:
        return sum(self.fails.values())


@dataclass(frozen=True, kw_only=True)
class Phase:
    """So many records, put at one pace, while so much fails. The endpoint fails at the same rate."""

    rate: float
    per_second: float | None
    """None: as fast as they can be put."""
    records: int
    plants: bool = False
    """Whether each kind of failure is in it, and a poison record, also where none is drawn."""

    def __str__(self) -> str:
        pace = "full speed" if self.per_second is None else f"{self.per_second:g}/s"
        return f"{named(self.rate)}, {pace}" if self.rate else "calm"


@dataclass(frozen=True, kw_only=True)
class TrialPlan:
    seed: int
    doors: Sequence[Door] = tuple(Door)
    rates: Sequence[float] = MIXED
    paces: Sequence[float | None] = (FULL, SLOW)
    records: int = 400
    """Of each phase at full speed."""
    phase_seconds: float = 60.0
    """Within which all records of a phase are to have an outcome."""
    shards: int = 4
    retry_limit: int = field(default=RETRY_LIMIT, init=False)

    def phases(self, door: Door) -> list[Phase]:
        """Draw what a door goes through: calm first, then one low and one high rate, or all that were chosen."""
        random = Random(f"{self.seed}/{door}/phases")
        rates = sorted(self.rates)
        if len(rates) > 2:
            half = len(rates) // 2
            rates = [random.choice(rates[:half]), random.choice(rates[half:])]
        phases = [Phase(rate=0.0, per_second=FULL, records=self.records)]
        if FULL in self.paces:
            phases += [Phase(rate=rate, per_second=FULL, records=self.records) for rate in rates]
        if SLOW in self.paces:
            phases += [Phase(rate=rates[-1], per_second=SLOW, records=_SLOW_SECONDS)]
        most = next(at for at, phase in enumerate(phases) if at and phase.rate == rates[-1])
        phases[most] = replace(phases[most], plants=True)
        return phases


def drawn_records(random: Random, door: Door, phase: Phase, first: int) -> list[TrialRecord]:
    """Draw the records of a phase."""
    places = PLACES[door]
    records = []
    for at in range(phase.records):
        word = f"word-{random.randrange(WORDS)}"
        is_poison, fails = False, Counter[str]()
        if places and phase.plants and at <= len(places):
            fails.update(places[at : at + 1])
            is_poison = at == len(places)
        elif places:
            is_poison = random.random() < min(phase.rate, POISON_SHARE)
            if not is_poison:
                count = failures_in_a_row(random, phase.rate, RETRY_LIMIT)
                fails.update(random.choice(places) for _ in range(count))
        records.append(TrialRecord(number=first + at, word=word, is_poison=is_poison, fails=dict(fails)))
    return records
