"""``resume`` lets a consumer go on that has paused."""

from tests.unit.cli.fake_world import SETTINGS, FakeWorld


def test_who_has_paused_is_told_to_go_on() -> None:
    world = FakeWorld()
    consumer = world.consumer()
    assert not consumer.coordinator.show_pause("all failed")
    _, err = world.call("resume", *SETTINGS)
    assert err == "consumer goes on\n"
    assert consumer.coordinator.show_pause("all failed")


def test_where_nobody_has_paused_it_says_so() -> None:
    world = FakeWorld()
    world.consumer()
    _, err = world.call("resume", *SETTINGS)
    assert err == "no consumer has paused\n"


def test_an_application_that_has_not_begun_is_an_error_that_lists_those_that_have() -> None:
    world = FakeWorld()
    world.others.append(("bookkeeping", "orders"))
    _, err = world.call("resume", *SETTINGS, exit_code=1)
    assert "bookkeeping" in err
