"""Homes of tasks: decided by who asks first, moved by who finds them lost, told to who knows the key."""

import logging
import pickle
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from kinesis_spout.processes.keyed_connections import Machine
from kinesis_spout.storm.spark.homes import Homes, HomesClient, Question, homes_of

ONE, OTHER, THIRD = (Machine("127.0.0.1", port) for port in (1, 2, 3))


@pytest.fixture
def homes() -> Iterator[Homes]:
    made = Homes("127.0.0.1", "127.0.0.1")
    yield made
    made.close()


def question(asking: Machine, *, task: str = "count-3", lost: Machine | None = None) -> Question:
    return Question(task=task, name=f"task {task}", asking=asking, lost=lost)


def test_the_machine_that_asks_first_is_the_home_for_all_others(homes: Homes) -> None:
    clients = [HomesClient(homes.address) for _ in range(2)]
    assert clients[0].ask(question(ONE)) == ONE
    assert clients[1].ask(question(OTHER)) == ONE
    assert clients[1].ask(question(OTHER, task="count-4")) == OTHER
    assert clients[0].host_here() == "127.0.0.1"
    for client in clients:
        client.close()


def test_a_lost_home_moves_once_and_the_log_says_that_the_process_starts_anew(
    homes: Homes, caplog: pytest.LogCaptureFixture
) -> None:
    homes.answer(question(ONE))
    with caplog.at_level(logging.WARNING):
        assert homes.answer(question(OTHER, lost=ONE)) == OTHER
        assert homes.answer(question(THIRD, lost=ONE)) == OTHER
    (said,) = caplog.messages
    assert said.startswith("task count-3: 127.0.0.1:1, where its process was, cannot be reached")
    assert "a new process starts on 127.0.0.1" in said


def test_who_does_not_know_the_key_is_told_nothing(homes: Homes) -> None:
    stranger = HomesClient(replace(homes.address, key=b"guessed"))
    with pytest.raises(ConnectionError, match=r"spark\.driver\.host"):
        stranger.ask(question(ONE))
    assert homes.answer(question(OTHER)) == OTHER


def test_a_driver_that_is_gone_is_an_error_that_says_what_is_expected() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    client = HomesClient(replace(Homes("127.0.0.1", "127.0.0.1").address, port=port))
    with pytest.raises(
        ConnectionError, match=rf"127\.0\.0\.1:{port}, which knows on which machine.*any port"
    ):
        client.ask(question(ONE))


@dataclass
class Application:
    """What is asked of a SparkContext."""

    applicationId: str  # noqa: N815 - Spark's name
    master: str = "spark://127.0.0.2:7077"
    conf: dict[str, str] = field(default_factory=lambda: {"spark.driver.host": "127.0.0.1"})

    def getConf(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        return self.conf


def test_an_application_has_one_place_to_ask_as_long_as_it_is_the_driver_s() -> None:
    one: Any = Application("app-1")
    homes = homes_of(one)
    assert homes is not None
    assert homes_of(one) is homes
    other: Any = Application("app-2")
    later = homes_of(other)
    assert later is not None
    assert later.address.key != homes.address.key
    with pytest.raises(ConnectionError):
        HomesClient(homes.address).ask(question(ONE))
    later.close()


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2]"])
def test_an_application_of_one_machine_has_nobody_to_ask(master: str) -> None:
    local: Any = Application("app-3", master=master)
    assert homes_of(local) is None


def test_the_key_travels_and_is_never_shown(homes: Homes) -> None:
    travelled = pickle.loads(pickle.dumps(homes.address))
    assert travelled == homes.address
    assert repr(homes.address.key) not in repr(travelled)
    assert "key" not in repr(travelled)
