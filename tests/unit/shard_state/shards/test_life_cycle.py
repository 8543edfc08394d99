from itertools import pairwise

import pytest

from shard_state.shards.life_cycle import ACQUIRABLE, TRANSITIONS, ShardEvent, ShardPhase, next_phase

P, E = ShardPhase, ShardEvent


def test_every_phase_answers_every_event() -> None:
    assert set(TRANSITIONS) == {(phase, event) for phase in ShardPhase for event in ShardEvent}


def test_a_life_goes_from_waiting_for_parents_to_over() -> None:
    life = [P.WAITING_FOR_PARENTS, P.READY, P.READING, P.AT_END, P.FINISHED, P.OVER]
    events = [E.PARENTS_OVER, E.ACQUIRED, E.END_READ, E.ALL_FINISHED, E.END_COMMITTED]
    for (before, after), event in zip(pairwise(life), events, strict=True):
        assert next_phase(before, event) is after


def test_these_are_all_the_moves_there_are() -> None:
    moves = {pair for pair, phase in TRANSITIONS.items() if phase is not pair[0]}
    assert moves == {
        (P.WAITING_FOR_PARENTS, E.PARENTS_OVER),
        (P.READY, E.ACQUIRED),
        (P.LOST, E.ACQUIRED),
        (P.READING, E.END_READ),
        (P.AT_END, E.ALL_FINISHED),
        (P.FINISHED, E.END_COMMITTED),
        (P.READING, E.BOUND_REACHED),
        (P.AT_BOUND, E.OWNERSHIP_LOST),
        (P.READING, E.OWNERSHIP_LOST),
        (P.AT_END, E.OWNERSHIP_LOST),
        (P.FINISHED, E.OWNERSHIP_LOST),
        *((phase, E.FOUND_OVER) for phase in P if phase is not P.OVER),
    }


@pytest.mark.parametrize("event", ShardEvent)
def test_nothing_follows_the_end(event: ShardEvent) -> None:
    assert next_phase(P.OVER, event) is P.OVER


def test_a_shard_is_never_over_before_its_end_was_committed_or_found() -> None:
    into = {event for (phase, event), after in TRANSITIONS.items() if after is P.OVER and phase is not P.OVER}
    assert into == {E.END_COMMITTED, E.FOUND_OVER}


def test_losing_the_ownership_leads_from_every_owned_phase_to_lost() -> None:
    assert {phase for phase in P if next_phase(phase, E.OWNERSHIP_LOST) is P.LOST} == {
        P.READING,
        P.AT_END,
        P.FINISHED,
        P.AT_BOUND,
        P.LOST,
    }
    assert {phase for phase in P if next_phase(phase, E.ACQUIRED) is P.READING} == ACQUIRABLE | {P.READING}
