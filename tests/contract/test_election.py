"""The contract of the port ``Election``."""

import threading
from collections.abc import Iterator
from typing import Protocol

import pytest
from kazoo.client import KazooClient

from kinesis_spout.model.errors import StoreUnavailable
from kinesis_spout.ports import Elected, Election
from kinesis_spout.testing import InMemoryOffice
from kinesis_spout.zookeeper import EmbeddedZooKeeper, ZooKeeperElection, ZooKeeperSession
from tests.support.waiting import wait_until
from tests.support.zookeeper.proxy import ZooKeeperProxy
from tests.support.zookeeper.server import SESSION_TIMEOUT_SECONDS, end_session

pytestmark = pytest.mark.no_second_run

_DELETE = 2
"""The operation code of the removal of a node."""


class Office(Protocol):
    def candidate(self, member: str) -> Election: ...

    def candidates(self) -> int: ...

    def expire(self, member: str) -> None:
        """End the session of a candidate, from outside."""

    def cut_off(self, member: str) -> None: ...

    def reconnect(self, member: str) -> None: ...

    def lose_departure(self, member: str) -> None:
        """Cut the connection of a candidate when it next leaves the queue, which so never hears of it."""


class OfficeInMemory(InMemoryOffice):
    def candidates(self) -> int:
        return len(self.queue)

    def lose_departure(self, member: str) -> None:
        """Nothing: a fake's queue is left at once."""


class RealOffice:
    """In the embedded ZooKeeper; every candidate reaches it through a proxy of its own."""

    def __init__(self, server: EmbeddedZooKeeper, root: str) -> None:
        self._server = server
        self._path = f"/{root}/office"
        self._proxies: dict[str, ZooKeeperProxy] = {}
        self._sessions: dict[str, ZooKeeperSession] = {}
        self.client = KazooClient(hosts=server.connect_string)
        self.client.start()

    def candidate(self, member: str) -> Election:
        proxy = self._proxies[member] = ZooKeeperProxy(self._server.connect_string)
        session = self._sessions[member] = ZooKeeperSession(
            proxy.connect_string, session_timeout_seconds=SESSION_TIMEOUT_SECONDS
        )
        session.start()
        return ZooKeeperElection("office", self._path, session, member)

    def candidates(self) -> int:
        queue = f"{self._path}/queue"
        return len(self.client.get_children(queue)) if self.client.exists(queue) else 0

    def expire(self, member: str) -> None:
        end_session(self._server, self._sessions[member].client.client_id)

    def cut_off(self, member: str) -> None:
        self._proxies[member].close_door()

    def reconnect(self, member: str) -> None:
        self._proxies[member].open_door()

    def remove_queue(self) -> None:
        self.client.delete(f"{self._path}/queue", recursive=True)

    def lose_departure(self, member: str) -> None:
        self._proxies[member].lose_next_request(_DELETE)

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()
        for proxy in self._proxies.values():
            proxy.close()
        self.client.stop()
        self.client.close()


@pytest.fixture
def real_office(zookeeper_server: EmbeddedZooKeeper, fresh_root: str) -> Iterator[RealOffice]:
    office = RealOffice(zookeeper_server, fresh_root)
    yield office
    office.close()


@pytest.fixture(params=["memory", pytest.param("zookeeper", marks=pytest.mark.zookeeper)])
def office(request: pytest.FixtureRequest) -> Office:
    if request.param == "memory":
        return OfficeInMemory(session_timeout_seconds=SESSION_TIMEOUT_SECONDS)
    real: RealOffice = request.getfixturevalue("real_office")
    return real


class Campaign:
    """A campaign that waits, in a thread."""

    def __init__(self, election: Election) -> None:
        self.elected: list[Elected | None] = []
        self._thread = threading.Thread(target=lambda: self.elected.append(election.campaign()))
        self._thread.start()

    def result(self) -> Elected | None:
        self._thread.join(60)
        (elected,) = self.elected
        return elected


def elected_of(election: Election) -> Elected:
    elected = election.campaign()
    assert elected is not None
    return elected


def test_the_first_candidate_leads_and_the_next_one_when_it_resigns(office: Office) -> None:
    one, two = office.candidate("one"), office.candidate("two")
    first = elected_of(one)
    waiting = Campaign(two)
    wait_until(lambda: office.candidates() == 2, "two has queued up")
    assert waiting.elected == []
    one.resign(first)
    second = waiting.result()
    assert second is not None
    assert second.token > first.token
    assert one.confirm(first, 10) is None
    asked_at = two.confirm(second, 10)
    assert asked_at is not None
    assert asked_at >= second.asked_at


def test_the_next_one_leads_when_the_session_of_the_first_ends(office: Office) -> None:
    one, two = office.candidate("one"), office.candidate("two")
    first = elected_of(one)
    waiting = Campaign(two)
    wait_until(lambda: office.candidates() == 2, "two has queued up")
    office.expire("one")
    second = waiting.result()
    assert second is not None
    assert second.token > first.token
    wait_until(lambda: confirmed(one, first) is None, "one learns that its term is over")


def confirmed(election: Election, elected: Elected) -> float | None:
    try:
        return election.confirm(elected, 5)
    except StoreUnavailable:
        return 0.0


def test_a_campaign_that_is_cancelled_ends_and_leaves_the_queue(office: Office) -> None:
    one, two = office.candidate("one"), office.candidate("two")
    elected_of(one)
    waiting = Campaign(two)
    wait_until(lambda: office.candidates() == 2, "two has queued up")
    two.cancel()
    assert waiting.result() is None
    assert office.candidates() == 1
    assert two.campaign() is None


def test_a_leader_that_is_cut_off_gets_no_answer_and_leads_on_once_connected_again(office: Office) -> None:
    one = office.candidate("one")
    elected = elected_of(one)
    office.cut_off("one")
    with pytest.raises(StoreUnavailable):
        one.confirm(elected, 0.2)
    office.reconnect("one")
    wait_until(lambda: confirmed(one, elected), "one is connected again")


def test_who_resigned_while_it_was_cut_off_does_not_stand_in_its_own_way(office: Office) -> None:
    one = office.candidate("one")
    first = elected_of(one)
    one.occupy(first)
    office.cut_off("one")
    resigned = threading.Thread(target=one.resign, args=(first,))
    resigned.start()
    resigned.join(60)
    office.reconnect("one")
    second = elected_of(one)
    assert second.token > first.token
    assert not one.is_occupied()
    assert office.candidates() == 1


def test_an_office_is_occupied_until_its_leader_resigns_also_when_its_session_ended(office: Office) -> None:
    one, two = office.candidate("one"), office.candidate("two")
    first = elected_of(one)
    assert not one.is_occupied()
    one.occupy(first)
    office.expire("one")
    second = elected_of(two)
    assert two.is_occupied()
    wait_until(lambda: confirmed(one, first) is None, "one learns that its term is over")
    one.resign(first)
    assert not two.is_occupied()
    two.occupy(second)
    one.resign(first)
    assert two.is_occupied()


def test_who_is_no_longer_elected_does_not_occupy_the_office(office: Office) -> None:
    one, two = office.candidate("one"), office.candidate("two")
    first = elected_of(one)
    office.expire("one")
    elected_of(two)
    wait_until(lambda: confirmed(one, first) is None, "one learns that its term is over")
    one.occupy(first)
    assert not two.is_occupied()


def test_a_candidate_that_could_not_leave_the_queue_does_not_wait_behind_itself(office: Office) -> None:
    one, two = office.candidate("one"), office.candidate("two")
    first = elected_of(one)
    office.lose_departure("two")
    assert two.campaign() is None
    waiting = Campaign(two)
    wait_until(lambda: office.candidates() == 2, "two is in the queue once")
    one.resign(first)
    assert waiting.result() is not None


@pytest.mark.zookeeper
def test_a_candidate_whose_queue_was_removed_stands_again(real_office: RealOffice) -> None:
    one, two = real_office.candidate("one"), real_office.candidate("two")
    first = elected_of(one)
    waiting = Campaign(two)
    wait_until(lambda: real_office.candidates() == 2, "two has queued up")
    real_office.remove_queue()
    between = waiting.result()  # elected, if one's node went first
    assert between is None or two.confirm(between, 10) is None
    assert one.confirm(first, 10) is None
    assert elected_of(two).token > first.token
