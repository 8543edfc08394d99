"""How long after an answer of ZooKeeper a session is certain, on a clock that the test holds."""

import time
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.zookeeper.zookeeper_session import Certainty, seconds_awake_or_asleep

if TYPE_CHECKING:
    from collections.abc import Callable


class World:
    """A clock, and the questions that are under way. Mutable."""

    def __init__(self) -> None:
        self.now = 100.0
        self.questions: list[Callable[[bool], None]] = []
        self.certainty = Certainty(4.0, self.questions.append, lambda: self.now)

    def answer(self, *, answered: bool = True) -> None:
        self.questions.pop(0)(answered)


@pytest.fixture
def world() -> World:
    made = World()
    made.certainty.ask()
    made.answer()
    return made


def test_nothing_is_certain_before_the_first_answer() -> None:
    world = World()
    assert not world.certainty.is_certain()
    world.answer()
    assert world.certainty.is_certain()


def test_it_asks_when_half_of_the_time_has_passed_once_at_a_time(world: World) -> None:
    world.now += 1.9
    assert world.certainty.is_certain()
    assert not world.questions
    world.now += 0.1
    for _ in range(3):
        assert world.certainty.is_certain()
    assert len(world.questions) == 1


def test_who_was_stopped_is_not_certain_before_the_next_answer(world: World) -> None:
    world.now += 20.0
    assert not world.certainty.is_certain()
    assert not world.certainty.is_certain()
    world.answer()
    assert world.certainty.is_certain()


def test_an_answer_counts_from_when_it_was_asked_for(world: World) -> None:
    world.now += 3.0
    assert world.certainty.is_certain()
    world.now += 3.9
    world.answer()
    assert world.certainty.is_certain()
    world.now += 0.2
    assert not world.certainty.is_certain()


def test_a_question_that_failed_or_was_forgotten_is_asked_again(world: World) -> None:
    world.now += 5.0
    assert not world.certainty.is_certain()
    world.answer(answered=False)
    assert not world.certainty.is_certain()
    assert len(world.questions) == 1
    world.now += 4.0
    assert not world.certainty.is_certain()
    assert len(world.questions) == 2
    world.answer()  # to the old question: it says nothing of now
    assert not world.certainty.is_certain()
    world.answer()
    assert world.certainty.is_certain()


def test_the_time_goes_on_with_the_clock_of_the_machine() -> None:
    before = seconds_awake_or_asleep()
    began = time.monotonic()
    while time.monotonic() < began + 0.01:
        pass
    assert seconds_awake_or_asleep() - before >= 0.009
