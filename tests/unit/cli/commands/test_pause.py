"""``resume`` lets a consumer go on that has paused."""

from tests.unit.cli.fake_world import SETTINGS, FakeWorld


def test_who_has_paused_is_told_to_go_on() -> None:
    world = FakeWorld()
    consumer = world.consumer()
    assert not consumer.coordinator.show_pause("all failed")
    _, err = world.call("resume", *SETTINGS)
    assert err == "consumer is resumed\n"
    assert consumer.coordinator.show_pause("all failed")


def test_where_nobody_has_paused_it_says_so() -> None:
    world = FakeWorld()
    world.consumer()
    _, err = world.call("resume", *SETTINGS)
    assert err == "nothing is paused\n"


def test_an_application_that_has_not_begun_is_an_error_that_lists_those_that_have() -> None:
    world = FakeWorld()
    world.others.append(("bookkeeping", "orders"))
    _, err = world.call("resume", *SETTINGS, exit_code=4)
    assert "bookkeeping" in err


def test_a_shard_is_paused_shown_and_resumed() -> None:
    world = FakeWorld()
    world.consumer()
    first, second = world.shard_ids
    _, err = world.call("pause", "--shard", first, *SETTINGS)
    assert err == f"{first} is paused\n"
    states = {row["shard_id"]: row["state"] for row in world.json("shards")["shards"]}
    assert (states[first], states[second]) == ("paused by an operator", "ready")
    _, err = world.call("shards", *SETTINGS)
    assert "an operator has paused shards; `kinesis-spout resume` lets them go on" in err
    _, err = world.call("resume", "--shard", first, "--shard", second, *SETTINGS)
    assert err == f"{first} is resumed\n{second} is not paused by an operator\n"


def test_the_whole_application_is_paused_and_resumed_and_no_part_of_it_alone() -> None:
    world = FakeWorld()
    world.consumer()
    first, _ = world.shard_ids
    _, err = world.call("pause", *SETTINGS)
    assert err == "the whole application is paused\n"
    _, err = world.call("resume", "--shard", first, *SETTINGS, exit_code=2)
    assert "the whole application is paused" in err
    _, err = world.call("resume", *SETTINGS)
    assert err == "the whole application is resumed\n"


def test_a_shard_that_is_none_is_not_paused() -> None:
    world = FakeWorld()
    world.consumer()
    _, err = world.call("pause", "--shard", "shardId-99", *SETTINGS, exit_code=1)
    assert "expected a shard of orders, got shardId-99" in err
    assert not world.zookeeper.process("looks").group.paused()
