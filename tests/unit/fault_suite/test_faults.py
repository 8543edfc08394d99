"""A fault that is over is over: nothing of it is left to happen later."""

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fault.suite.faults import CONSUMER_FAULTS


class Proxy:
    """What a consumer's proxy is told to lose."""

    def __init__(self) -> None:
        self.requests_lost = 0
        self.answers_lost = 0
        self.to_lose: list[str] = []

    def lose_next_request(self) -> None:
        self.to_lose.append("requests_lost")

    def lose_next_answer(self) -> None:
        self.to_lose.append("answers_lost")

    def lose_no_more(self) -> None:
        self.to_lose.clear()

    def lose(self) -> None:
        what = self.to_lose.pop()
        setattr(self, what, getattr(self, what) + 1)


LOSSES = [fault for fault in CONSUMER_FAULTS if "lost" in fault.kind]


@pytest.mark.parametrize("fault", LOSSES, ids=lambda fault: fault.kind)
def test_a_loss_that_did_not_happen_in_its_time_does_not_happen_later(fault: Any) -> None:
    proxy = Proxy()
    consumer = SimpleNamespace(zookeeper=proxy)
    end = fault.begin(consumer, Random(1))
    assert len(proxy.to_lose) == 1
    assert end() is False
    assert proxy.to_lose == []


@pytest.mark.parametrize("fault", LOSSES, ids=lambda fault: fault.kind)
def test_a_loss_that_happened_counts(fault: Any) -> None:
    proxy = Proxy()
    consumer = SimpleNamespace(zookeeper=proxy)
    end = fault.begin(consumer, Random(1))
    proxy.lose()
    assert end() is True
