"""A career over an office in memory, and what ``stand_for`` takes: no word about streams."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.recipes.leader import HandOver, LeaderCareer, Term, stand_for
from kinesis_spout.testing import InMemoryOffice, ManualClock
from tests.support.waiting import wait_until

pytestmark = pytest.mark.no_second_run

SESSION_SECONDS = 6.0


class Diary:
    """A leader that writes down what it is told. A test says what it does in a unit, and at the end of a term."""

    def __init__(
        self,
        at_unit: Callable[["Diary"], object] = lambda _: None,
        at_end: Callable[[], object] = lambda: None,
    ) -> None:
        self.at_unit = at_unit
        self.at_end = at_end
        self.terms: list[Term] = []
        self.certain_units = 0
        self.units = 0
        self.hand_overs: list[HandOver] = []

    def inaugurate(self, term: Term) -> None:
        self.terms.append(term)

    def execute(self) -> bool:
        self.units += 1
        self.certain_units += self.terms[-1].is_certain
        self.at_unit(self)
        return True

    def hand_over(self, reason: HandOver) -> None:
        self.hand_overs.append(reason)
        self.at_end()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def office(clock: ManualClock) -> InMemoryOffice:
    return InMemoryOffice(session_timeout_seconds=SESSION_SECONDS, clock=clock)


def career_of(
    leader: Diary, office: InMemoryOffice, member: str, *, last_unit_seconds: float = 0.0
) -> LeaderCareer:
    return LeaderCareer(
        leader, office.candidate(member), last_unit_seconds=last_unit_seconds, clock=office.clock
    )


@contextmanager
def running(career: LeaderCareer) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=career.run)
    thread.start()
    try:
        yield thread
    finally:
        career.stop()
        thread.join(60)
        assert not thread.is_alive()


def test_a_career_that_is_stopped_ends_after_its_unit_and_hands_over(office: InMemoryOffice) -> None:
    diary = Diary(lambda diary: career.stop() if diary.units == 3 else None)
    career = career_of(diary, office, "one")
    career.run()
    assert (diary.units, diary.hand_overs) == (3, [HandOver.STOPPED])
    assert not diary.terms[0].is_certain
    assert office.queue == []


def test_of_two_candidates_one_leads_and_the_other_follows_when_it_stops(office: InMemoryOffice) -> None:
    first, second = Diary(), Diary()
    one, two = career_of(first, office, "one"), career_of(second, office, "two")
    with running(one):
        wait_until(lambda: first.units, "one leads")
        with running(two):
            wait_until(lambda: len(office.queue) == 2, "two waits")
            assert (second.units, two.term) == (0, None)
            one.stop()
            wait_until(lambda: second.units, "two leads")
            assert first.hand_overs == [HandOver.STOPPED]
            assert second.terms[0].token > first.terms[0].token


def test_a_leader_that_is_cut_off_stops_before_its_session_can_end(
    office: InMemoryOffice, clock: ManualClock
) -> None:
    def work(diary: Diary) -> None:
        if diary.units == 3:
            office.cut_off("one")
        clock.advance(0.5)

    diary = Diary(work)
    career = career_of(diary, office, "one")
    diary.at_end = career.stop
    career.run()
    assert diary.hand_overs == [HandOver.LOST]
    assert diary.units > 3
    assert diary.certain_units == diary.units
    assert clock.monotonic() < SESSION_SECONDS


def test_a_leader_that_slept_through_the_end_of_its_session_does_no_more(
    office: InMemoryOffice, clock: ManualClock
) -> None:
    certain: list[bool] = []

    def sleep(diary: Diary) -> None:
        clock.advance(100)
        office.expire("one")
        certain.append(diary.terms[0].is_certain)

    diary = Diary(sleep)
    career = career_of(diary, office, "one")
    diary.at_end = career.stop
    career.run()
    assert (diary.units, certain, diary.hand_overs) == (1, [False], [HandOver.LOST])


def test_a_long_unit_ends_no_term_while_nobody_else_has_led(
    office: InMemoryOffice, clock: ManualClock
) -> None:
    def work(diary: Diary) -> None:
        clock.advance(100)
        if diary.units == 3:
            career.stop()

    diary = Diary(work)
    career = career_of(diary, office, "one")
    career.run()
    assert (diary.units, len(diary.terms), diary.hand_overs) == (3, 1, [HandOver.STOPPED])


def test_a_leader_that_lost_its_term_stands_again_when_it_is_connected_again(
    office: InMemoryOffice, clock: ManualClock
) -> None:
    def work(diary: Diary) -> None:
        if diary.units == 1:
            office.cut_off("one")
        clock.advance(1)
        if len(diary.terms) == 2:
            career.stop()

    diary = Diary(work, lambda: office.reconnect("one"))
    career = career_of(diary, office, "one")
    career.run()
    assert diary.hand_overs == [HandOver.LOST, HandOver.STOPPED]
    assert diary.terms[1].token > diary.terms[0].token


def test_what_the_work_raises_ends_the_term_and_the_career(office: InMemoryOffice) -> None:
    def work(_: Diary) -> None:
        raise ValueError("the books do not balance")

    diary = Diary(work)
    with pytest.raises(ValueError, match="do not balance"):
        career_of(diary, office, "one").run()
    assert diary.hand_overs == [HandOver.FAILED]
    assert office.queue == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_career_after_the_unit_under_way(
    number: signal.Signals, office: InMemoryOffice
) -> None:
    ended: list[int] = []

    def work(diary: Diary) -> None:
        if diary.units == 3:
            signal.raise_signal(number)
        ended.append(diary.units)

    diary = Diary(work)
    career_of(diary, office, "one").run()
    assert ended[:3] == [1, 2, 3]
    assert (len(ended), diary.hand_overs) == (diary.units, [HandOver.STOPPED])
    assert office.queue == []


def test_a_signal_ends_a_career_that_waits_for_its_term(office: InMemoryOffice) -> None:
    first, second = Diary(), Diary()

    def stop_the_second() -> None:
        wait_until(lambda: len(office.queue) == 2, "two waits")
        os.kill(os.getpid(), signal.SIGTERM)

    with running(career_of(first, office, "one")), ThreadPoolExecutor(1) as thread:
        wait_until(lambda: first.units, "one leads")
        stopped = thread.submit(stop_the_second)
        career_of(second, office, "two").run()
        stopped.result(30)
    assert (second.units, second.hand_overs) == (0, [])


def test_a_second_ctrl_c_ends_the_term_within_a_unit(office: InMemoryOffice) -> None:
    def press(_: Diary) -> None:
        raise KeyboardInterrupt

    diary = Diary(press)
    with pytest.raises(KeyboardInterrupt):
        career_of(diary, office, "one").run()
    assert diary.hand_overs == [HandOver.STOPPED]
    assert office.queue == []


def test_a_new_leader_waits_for_the_last_unit_of_the_one_before(
    office: InMemoryOffice, clock: ManualClock
) -> None:
    done: list[str] = []
    in_unit, may_end = threading.Event(), threading.Event()

    def work(_: Diary) -> None:
        in_unit.set()
        assert may_end.wait(60)
        done.append("one")

    first, second = Diary(work), Diary(lambda _: done.append("two"))
    one = career_of(first, office, "one", last_unit_seconds=1e9)
    two = career_of(second, office, "two", last_unit_seconds=1e9)
    with running(one):
        assert in_unit.wait(60)
        office.expire("one")
        one.stop()
        with running(two):
            wait_until(lambda: clock.monotonic() > 10, "two is elected, and waits")
            assert done == []
            may_end.set()
            wait_until(lambda: "two" in done, "two works")
    assert done[0] == "one"


def test_a_new_leader_waits_no_longer_than_a_unit_may_take(
    office: InMemoryOffice, clock: ManualClock
) -> None:
    dead = office.candidate("dead")
    elected = dead.campaign()
    assert elected is not None
    dead.occupy(elected)
    office.expire("dead")
    diary = Diary(lambda _: career.stop())
    career = career_of(diary, office, "one", last_unit_seconds=30.0)
    career.run()
    assert diary.units == 1
    assert clock.monotonic() == pytest.approx(30, abs=0.5)
    assert office.occupied_by is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"zookeeper": "zk1"}, "zookeeper: expected 'embedded', .* got 'zk1'"),
        ({"zookeeper": "zk1:2181", "zookeeper_root": "a/b"}, "zookeeper_root: expected"),
        ({"session_timeout_seconds": 0.1}, "session_timeout_seconds: expected"),
        ({"zookeeper": "zk1:2181", "zookeeper_user": "bill"}, "zookeeper_user: expected zookeeper_password"),
        ({"zookeeper_tls": True}, "zookeeper_tls: expected none with the embedded ZooKeeper"),
        ({"stream": "orders"}, "unknown keyword argument 'stream'"),
        ({"zookeper": "zk1:2181"}, "unknown keyword argument 'zookeper': did you mean zookeeper"),
    ],
)
def test_what_it_cannot_use_is_refused_before_anything_is_started(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        stand_for("nightly-bill", **settings)


def test_a_name_that_is_no_place_in_zookeeper_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="nightly/bill"):
        stand_for("nightly/bill")
