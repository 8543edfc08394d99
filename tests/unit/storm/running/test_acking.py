"""The acker by itself, and Storm's derivation tuple by tuple."""

from array import array
from itertools import permutations
from random import Random
from typing import Final

import pytest

from kinesis_spout.model.handler import Failure
from kinesis_spout.storm.running.acking import Acker, TreeEnd

pytestmark = pytest.mark.no_second_run

ROOT: Final = 0xA11CE

E1: Final = 0x1111_0000_0000_0001
E2: Final = 0x2222_0000_0000_0020
E3: Final = 0x4444_0000_0000_0300
E4: Final = 0x8888_0000_0000_4000
E5: Final = 0x0F0F_0000_0005_0000
E6: Final = 0xF0F0_0000_0060_0000
"""The edge ids of the tuples T1 to T6."""


def failed(component: str = "bolt") -> TreeEnd:
    return TreeEnd(component=component, failure=Failure(error_text="why"))


def timed_out(component: str = "bolt") -> TreeEnd:
    return TreeEnd.after_time_out(Failure(error_text="why"), component)


def value_of(acker: Acker, root: int) -> int:
    """Give the XOR of what was told of a root; 0 if it is complete, or unknown."""
    roots, values = acker.words()
    known: dict[int, int] = dict(zip(roots.tolist(), values.tolist(), strict=True))
    return known.get(root, 0)


def size_bytes(acker: Acker) -> int:
    return sum(each.nbytes for pair in [(acker._roots, acker._values), *acker._new] for each in pair)


def test_the_xor_derivation_of_a_tree_of_six_tuples_ends_at_zero() -> None:
    # The spout emits T1 to bolt A. A emits T2 and T3 to bolts B and C, anchored to T1. B emits T4 to D, anchored
    # to T2. C emits T5 and T6 to D, anchored to T3. D emits nothing. Each bolt acks what it was given, and tells
    # the XOR of that edge with those that it made.
    acker = Acker()
    steps = [
        # who                    tells               the acker's value then
        ("spout makes T1", E1, 0x1111_0000_0000_0001),
        ("A acks T1, made T2, T3", E1 ^ E2 ^ E3, 0x6666_0000_0000_0320),
        ("B acks T2, made T4", E2 ^ E4, 0xCCCC_0000_0000_4300),
        ("C acks T3, made T5, T6", E3 ^ E5 ^ E6, 0x7777_0000_0065_4000),
        ("D acks T4", E4, 0xFFFF_0000_0065_0000),
        ("D acks T5", E5, 0xF0F0_0000_0060_0000),
        ("D acks T6", E6, 0),
    ]
    assert steps[1][2] == E2 ^ E3, "T2 and T3 are not acked"
    assert steps[3][2] == E4 ^ E5 ^ E6, "T4, T5 and T6 are not acked"
    for who, told, value in steps:
        assert list(acker.unfinished()) == ([] if who.startswith("spout") else [ROOT])
        acker.tell(ROOT, told)
        assert value_of(acker, ROOT) == value, who
    assert len(acker.unfinished()) == 0
    assert acker.unfinished() == {}


def test_the_messages_of_the_derivation_end_at_zero_in_any_order_and_never_before() -> None:
    told = [E1, E1 ^ E2 ^ E3, E2 ^ E4, E3 ^ E5 ^ E6, E4, E5, E6]
    for order in permutations(told):
        value = 0
        for message in order[:-1]:
            value ^= message
            assert value != 0
        assert value ^ order[-1] == 0
    for seed in range(50):
        acker = Acker()
        for message in Random(seed).sample(told, len(told)):
            assert acker.unfinished() or value_of(acker, ROOT) == 0
            acker.tell(ROOT, message)
        assert len(acker.unfinished()) == 0


def test_a_tree_that_misses_one_ack_is_unfinished_with_the_edge_that_is_missing_as_its_value() -> None:
    acker = Acker()
    for told in [E1, E1 ^ E2 ^ E3, E2 ^ E4, E3 ^ E5 ^ E6, E4, E6]:
        acker.tell(ROOT, told)
    assert value_of(acker, ROOT) == E5
    assert acker.unfinished() == {ROOT: None}


def test_a_complete_tree_is_complete_whatever_else_was_said() -> None:
    acker = Acker()
    acker.tell(ROOT, E1)
    acker.fail(ROOT, failed())
    acker.tell(ROOT, E1)
    assert acker.unfinished() == {}


def test_a_fail_that_comes_before_the_tree_is_known_counts() -> None:
    acker = Acker()
    acker.fail(ROOT, failed())
    acker.tell(ROOT, E1)
    assert acker.unfinished() == {ROOT: failed()}


def test_a_fail_counts_before_a_time_out_and_the_first_of_its_kind_before_the_next() -> None:
    acker = Acker()
    acker.tell_all(array("Q", (1, 2, 3)), array("Q", (E1, E2, E3)))
    for root in (1, 2):
        acker.fail(root, timed_out("slow"))
        acker.fail(root, timed_out("slower"))
    acker.fail(2, failed("first"))
    acker.fail(2, failed("second"))
    acker.fail(2, timed_out("slowest"))
    assert acker.unfinished() == {
        1: timed_out("slow"),
        2: failed("first"),
        3: None,
    }


def test_whatever_counts_counts_before_a_tuple_that_was_put_off() -> None:
    put_off = TreeEnd(component="shell", failure=Failure(error_text="not now", put_off=True))
    acker = Acker()
    acker.tell_all(array("Q", (1, 2, 3)), array("Q", (E1, E2, E3)))
    for root in (1, 2, 3):
        acker.fail(root, put_off)
    acker.fail(2, timed_out())
    acker.fail(3, failed())
    acker.fail(3, put_off)
    assert acker.unfinished() == {1: put_off, 2: timed_out(), 3: failed()}


def test_an_acker_that_was_told_of_fails_only_has_no_tree() -> None:
    acker = Acker()
    acker.tell_all(b"", b"")
    acker.fail(ROOT, failed())
    assert acker.unfinished() == {}
    assert len(acker.unfinished()) == 0


def test_the_value_of_a_root_it_was_never_told_of_is_zero() -> None:
    acker = Acker()
    assert value_of(acker, ROOT) == 0
    acker.tell(ROOT + 1, 7)
    assert value_of(acker, ROOT) == 0
    assert value_of(acker, 2**64 - 1) == 0


def test_a_tree_costs_sixteen_bytes_whatever_its_size() -> None:
    random = Random(5)
    acker = Acker()
    for tuples in (10, 100_000):
        for _ in range(tuples):
            acker.tell(tuples, random.getrandbits(64))
    assert len(acker.unfinished()) == 2
    assert size_bytes(acker) == 2 * 16


def test_messages_are_folded_before_they_outgrow_the_trees() -> None:
    acker = Acker()
    roots = array("Q", range(1, 10_001))
    for _ in range(101):
        acker.tell_all(roots, roots)
        assert size_bytes(acker) <= 16 * (10_000 + 65_536 + 10_000)
    assert len(acker.unfinished()) == 10_000
    assert size_bytes(acker) == 16 * 10_000
    acker.tell_all(roots, roots)
    assert len(acker.unfinished()) == size_bytes(acker) == 0
