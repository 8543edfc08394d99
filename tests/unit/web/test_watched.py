"""An observation is shared by all who look, and ends its session when nobody does."""

import threading

import pytest

from kinesis_spout.operations.watch import observation, shared_session
from kinesis_spout.operations.watch.observation import Observation
from kinesis_spout.operations.world import UNNAMED
from tests.support.waiting import wait_until
from tests.unit.web.page_world import HOME, PageWorld


def test_ten_browsers_cost_one_session_and_one_reading(world: PageWorld) -> None:
    world.member()
    browser = world.browser()
    for _ in range(10):
        assert browser.get(HOME).status == 200
    assert world.opened.count("progress") == 1
    assert world.opened.count("stream") == 1


def test_all_applications_are_looked_at_in_one_session(world: PageWorld) -> None:
    world.member()
    world.others = [("audit", "orders"), ("shipping", "orders")]
    browser = world.browser(UNNAMED, UNNAMED)
    wait_until(lambda: "not read" not in browser.get("/").said, "all applications are read")
    said = browser.get("/").said
    assert all(f"{app} orders ready 2 of 2 shards" in said for app in ("audit", "billing", "shipping"))
    browser.get(HOME)
    assert world.opened.count("progress") == 1
    assert world.opened.count("stream") == 3


def test_when_nobody_looks_the_session_ends_and_a_look_begins_another(
    world: PageWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.member()
    browser = world.browser()
    browser.get(HOME)
    watched = world.page.state.pages.watched
    watched.close_unwatched()
    assert len(watched._observations) == 1
    assert world.opened.count("progress") == 1
    for module in (observation, shared_session):
        monkeypatch.setattr(module, "UNWATCHED_SECONDS", 0.0)
    watched.close_unwatched()
    assert watched._observations == {}
    assert browser.get(HOME).status == 200
    assert world.opened.count("progress") == 2


def test_a_first_look_that_takes_long_is_no_error_of_the_server(
    world: PageWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.member()
    browser = world.browser()
    monkeypatch.setattr(observation, "_STORE_PATIENCE_SECONDS", 0.0)
    answered, read = threading.Event(), Observation._read_stored

    def read_late(self: Observation) -> object:
        answered.wait(60)
        return read(self)

    monkeypatch.setattr(Observation, "_read_stored", read_late)
    answer = browser.get(HOME)
    assert answer.status == 503
    assert "look again in a moment" in answer.said
    answered.set()
    wait_until(lambda: browser.get(HOME).status == 200, "the page")


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


def test_the_list_begins_to_show_applications_while_one_takes_long(
    world: PageWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.member()
    answered, look = threading.Event(), Observation.glance

    def glance_late(self: Observation) -> object:
        answered.wait(60)
        return look(self)

    monkeypatch.setattr(Observation, "glance", glance_late)
    monkeypatch.setattr("kinesis_spout.web.watched._TOUR_PATIENCE_SECONDS", 0.0)
    browser = world.browser(UNNAMED, UNNAMED)
    assert "billing orders not read" in browser.get("/").said
    answered.set()
    wait_until(lambda: "billing orders ready" in browser.get("/").said, "the list")


def test_an_application_that_this_server_cannot_make_out_hides_no_other(
    world: PageWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.member()
    world.others = [("audit", "orders")]
    look = Observation.glance

    def glance(self: Observation) -> object:
        if self.config.app == "audit":
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "not text")
        return look(self)

    monkeypatch.setattr(Observation, "glance", glance)
    browser = world.browser(UNNAMED, UNNAMED)
    wait_until(lambda: "billing orders ready" in browser.get("/").said, "the list")
    assert "audit orders cannot be read an error of this server: UnicodeDecodeError" in browser.get("/").said


def test_the_loss_of_the_session_is_seen_by_all_and_the_next_look_opens_another(world: PageWorld) -> None:
    world.member()
    world.others = [("audit", "orders")]
    browser = world.browser(UNNAMED, UNNAMED)
    assert browser.get(HOME).status == browser.get("/a/audit/orders").status == 200
    world.zookeeper.set_available(False)
    world.forget_readings()
    assert browser.get(HOME).status == 503
    world.zookeeper.set_available(True)
    world.forget_readings()
    assert browser.get(HOME).status == browser.get("/a/audit/orders").status == 200
    assert world.opened.count("progress") >= 2
