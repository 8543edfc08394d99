"""An observation is shared by all who look, and ends its session when nobody does."""

import pytest

from kinesis_spout.operations.watch import observation
from tests.unit.web.page_world import HOME, PageWorld


def test_ten_browsers_cost_one_session_and_one_reading(world: PageWorld) -> None:
    world.member()
    browser = world.browser()
    for _ in range(10):
        assert browser.get(HOME).status == 200
    assert world.opened.count("progress") == 1
    assert world.opened.count("stream") == 1


def test_when_nobody_looks_the_session_ends_and_a_look_begins_another(
    world: PageWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.member()
    browser = world.browser()
    browser.get(HOME)
    watched = world.page.state.pages.watched
    watched.close_unwatched()
    assert len(watched._observations) == 1
    monkeypatch.setattr(observation, "_UNWATCHED_SECONDS", 0.0)
    watched.close_unwatched()
    assert watched._observations == {}
    assert browser.get(HOME).status == 200
    assert world.opened.count("progress") == 2


def test_an_observation_recovers_from_an_outage(world: PageWorld) -> None:
    world.member()
    browser = world.browser()
    assert browser.get(HOME).status == 200
    world.zookeeper.set_available(False)
    world.forget_readings()
    assert browser.get(HOME).status == 503
    world.zookeeper.set_available(True)
    world.forget_readings()
    assert browser.get(HOME).status == 200
