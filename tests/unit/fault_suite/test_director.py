"""A run that cannot go on ends with a verdict that says why."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from tests.fault.suite import director
from tests.fault.suite.director import Director, Outcome
from tests.fault.suite.world import Plan

if TYPE_CHECKING:
    from tests.fault.suite.world import World


class Producer(nullcontext[None]):
    """Puts nothing."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.error = error


def run(producer: Producer, *, is_complete: bool) -> Outcome:
    world = SimpleNamespace(
        plan=Plan(seed=1, events=1, seconds=3_600.0),
        consumers=[],
        disk=None,
        is_complete=is_complete,
        is_settled=True,
        absent=lambda: ["s2.1 was none"],
        prober=nullcontext(),
        producer=producer,
    )
    return Director(cast("World", world), lambda _director: None).run()


def test_a_consumer_that_does_not_begin_in_time_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(director, "_START_SECONDS", 0.0)
    monkeypatch.setattr(Director, "_tick", lambda _self: None)
    outcome = run(Producer(), is_complete=False)
    assert outcome.cut_short == ["not every consumer was a member 0 s after the start", "s2.1 was none"]
    assert outcome.settle_seconds is None


def test_where_nothing_more_can_be_put_what_was_put_is_judged() -> None:
    outcome = run(Producer(ConnectionError("the endpoint is gone")), is_complete=True)
    assert outcome.cut_short == ["nothing more could be put: ConnectionError('the endpoint is gone')"]
    assert outcome.settle_seconds is not None
