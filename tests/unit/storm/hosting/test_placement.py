"""Machines of tasks: decided by who asks first, moved by who finds them lost, told to who knows the key."""

import logging
import pickle
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest

from kinesis_spout.processes.keyed_connections import Machine
from kinesis_spout.storm.hosting.processes.host_socket import AskMachine
from kinesis_spout.storm.hosting.processes.placement import Placement, placement_of
from tests.support.storm.shell_topology import KEY

ONE, OTHER, THIRD = (Machine("127.0.0.1", port) for port in (1, 2, 3))


@pytest.fixture
def placement() -> Iterator[Placement]:
    made = Placement("127.0.0.1", "127.0.0.1")
    yield made
    made.close()


def question(asking: Machine, *, task: int = 3, lost: Machine | None = None) -> AskMachine:
    return AskMachine(key=msgspec.structs.replace(KEY, task=task), asking=asking, lost=lost)


def test_the_machine_that_asks_first_has_the_task_for_all_others(placement: Placement) -> None:
    address = placement.address
    assert address.ask(question(ONE)) == ONE
    assert address.ask(question(OTHER)) == ONE
    assert address.ask(question(OTHER, task=4)) == OTHER
    assert address.host_here() == "127.0.0.1"


def test_the_task_of_a_lost_machine_moves_once_and_the_log_says_that_the_process_starts_anew(
    placement: Placement, caplog: pytest.LogCaptureFixture
) -> None:
    placement.answer(question(ONE))
    with caplog.at_level(logging.WARNING):
        assert placement.answer(question(OTHER, lost=ONE)) == OTHER
        assert placement.answer(question(THIRD, lost=ONE)) == OTHER
    (said,) = caplog.messages
    assert said.startswith("component 'shell', task 3: 127.0.0.1:1, where its process was, cannot be reached")
    assert "a new process starts on 127.0.0.1" in said


def test_who_does_not_know_the_key_is_told_nothing(placement: Placement) -> None:
    stranger = replace(placement.address, key=b"guessed")
    with pytest.raises(ConnectionError, match=r"spark\.driver\.host"):
        stranger.ask(question(ONE))
    assert placement.answer(question(OTHER)) == OTHER


def test_a_driver_that_is_gone_is_an_error_that_says_what_is_expected() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    address = replace(Placement("127.0.0.1", "127.0.0.1").address, port=port)
    with pytest.raises(
        ConnectionError, match=rf"127\.0\.0\.1:{port}, which knows on which machine.*any port"
    ):
        address.ask(question(ONE))


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
    placement = placement_of(one)
    assert placement is not None
    assert placement_of(one) is placement
    other: Any = Application("app-2")
    later = placement_of(other)
    assert later is not None
    assert later.address.key != placement.address.key
    with pytest.raises(ConnectionError):
        placement.address.ask(question(ONE))
    later.close()


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2]"])
def test_an_application_of_one_machine_has_nobody_to_ask(master: str) -> None:
    local: Any = Application("app-3", master=master)
    assert placement_of(local) is None


def test_the_key_travels_and_is_never_shown(placement: Placement) -> None:
    travelled = pickle.loads(pickle.dumps(placement.address))
    assert travelled == placement.address
    assert repr(placement.address.key) not in repr(travelled)
    assert "key" not in repr(travelled)
