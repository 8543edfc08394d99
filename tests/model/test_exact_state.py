"""Keyed state under failures at random rates, against an oracle that executes what stands serially, key by key.

Records have tuples of several keys. The bolt before the state fails a record half emitted; the bolt with state,
one fused behind it and one behind another exchange fail tuples after state was changed; each call fails by chance,
so the next delivery may succeed. Bolts join tuples of two records, hold them to the flush, change values in place.
Workers are replaced. A record that failed comes again until it is acked.
"""

import random
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_spout.storm import Bolt, FailedException, KeyValueState, StatefulBolt, Topology, Tuple
from tests.support.storm.scripted_topology import begin

pytestmark = pytest.mark.no_second_run

Item = tuple[str, int]
Record = tuple[Item, ...]

DRAWN = random.Random()
"""Here, as each task of a bolt is a copy. Seeded by the test, so that it can be replayed."""


class Fickle(Bolt):
    """Passes on what it is given; of so many tuples it fails one."""

    def __init__(self, rate: float, *, joins: bool = False, holds: bool = False, apart: bool = False) -> None:
        self._rate = rate
        self._joins = joins
        self._holds = holds
        self._apart = apart
        """Whether it passes what it held on one by one, as a batching bolt does."""

    def declare_output_fields(self) -> list[str]:
        return ["key", "number"]

    def prepare(self, *given: Any) -> None:
        super().prepare(*given)
        self._held: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        if self._holds or self._joins:
            self._held.append(tup)
            if self._joins and len(self._held) == 2:
                self.flush()
            return
        self._pass_on([tup])

    def flush(self) -> None:
        held, self._held = self._held, []
        for tuples in [[tup] for tup in held] if self._apart else [held] * bool(held):
            self._pass_on(tuples)

    def _pass_on(self, tuples: list[Tuple]) -> None:
        """Emit all, anchored to all, and ack or fail all."""
        fails = DRAWN.random() < self._rate
        items = [item for tup in tuples for item in self._items(tup)]
        for item in items[: len(items) // 2] if fails else items:
            self.collector.emit(item, tuples)
        for tup in tuples:
            if fails:
                self.collector.fail(tup, "by chance")
            else:
                self.collector.ack(tup)

    def _items(self, tup: Tuple) -> list[Item]:
        return tup["items"] if "items" in tup.fields else [tuple(tup.values)]


class Keeps(StatefulBolt):
    """Keeps the numbers of each key in their order: as a text, or in a list that it changes in place."""

    def __init__(self, rate: float, *, in_place: bool, at_flush: bool) -> None:
        self._rate = rate
        self._in_place = in_place
        self._at_flush = at_flush

    def declare_output_fields(self) -> list[str]:
        return ["key", "number"]

    def init_state(self, state: KeyValueState) -> None:
        self._state = state
        self._later: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        if self._at_flush:
            self._later.append(tup)
        else:
            self._keep(tup)

    def flush(self) -> None:
        later, self._later = self._later, []
        for tup in later:
            try:
                self._keep(tup)
            except FailedException as error:
                self.collector.fail(tup, error)

    def _keep(self, tup: Tuple) -> None:
        key, number = tup.values
        if self._in_place:
            numbers = self._state.get(key, [])
            numbers.append(number)
            self._state.put(key, numbers)
        else:
            self._state.put(key, f"{self._state.get(key, '')} {number}")
        if DRAWN.random() < self._rate / 2:
            raise FailedException("after it was kept")
        self.collector.emit((key, number), tup)
        if DRAWN.random() < self._rate / 2:
            raise FailedException("after it was passed on")
        self.collector.ack(tup)


def topology(
    rate: float, *, joins: bool, holds: bool, apart: bool, in_place: bool, at_flush: bool, has_ackers: bool
) -> Topology:
    builder = begin(["items"])
    builder.set_bolt("split", Fickle(rate)).shuffle_grouping("numbers")
    joined = builder.set_bolt("join", Fickle(rate / 2, joins=joins, holds=holds, apart=apart))
    joined.global_grouping("split")
    builder.set_bolt("keep", Keeps(rate, in_place=in_place, at_flush=at_flush), 3).fields_grouping(
        "join", ["key"]
    )
    builder.set_bolt("fused", Fickle(rate), 2).shuffle_grouping("keep")
    builder.set_bolt("again", Keeps(rate / 2, in_place=in_place, at_flush=False), 2).fields_grouping(
        "fused", ["key"]
    )
    builder.set_bolt("behind", Fickle(rate, holds=holds, apart=apart)).global_grouping("again")
    return builder.build("exact", ackers=2 if has_ackers else None, partitions=2)


def numbers_of(kept: Any) -> list[int]:
    return [int(number) for number in (kept.split() if isinstance(kept, str) else kept)]


@pytest.mark.parametrize("rate", [0.0, 0.001, 0.01, 0.05, 0.3])
@given(
    seed=st.integers(0, 1 << 32),
    keys=st.sampled_from([1, 3, 40]),
    size=st.integers(1, 3),
    bolts=st.fixed_dictionaries(
        dict.fromkeys(
            ["joins", "holds", "apart", "in_place", "at_flush", "has_ackers"],
            st.sampled_from([False, False, True]),
        )
    ),
)
@settings(max_examples=25, deadline=None)
def test_each_record_that_was_acked_counts_once_in_every_key_and_no_other_does(
    rate: float, seed: int, keys: int, size: int, bolts: dict[str, bool]
) -> None:
    DRAWN.seed(seed)
    local = topology(rate, **bolts).local()
    count = 24
    waiting = [
        tuple((f"key {DRAWN.randrange(keys)}", size * number + at) for at in range(size))
        for number in range(count)
    ]
    standing: dict[str, list[int]] = defaultdict(list)
    for _ in range(6):
        batch, waiting = waiting[:16], waiting[16:]
        result = local.run([(list(record),) for record in batch])
        for (items,) in result.acked:
            for key, number in items:
                standing[key].append(number)
        kept = local.state
        for component in ("keep", "again"):
            found = {key: sorted(numbers_of(of_key)) for key, of_key in kept.get(component, {}).items()}
            assert found == {key: sorted(numbers) for key, numbers in standing.items()}
        waiting += [tuple(values[0]) for values, _ in result.failed]
        if DRAWN.random() < 0.3:
            local.close()  # as if other workers went on
    if not (rate or bolts["joins"]):
        assert not waiting
