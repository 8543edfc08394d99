"""``start_again``: an application begins again, once for each deployment, and not at every restart."""

import logging

import pytest

from kinesis_spout.model.errors import ConsumerAlive, InvalidConfig
from kinesis_spout.settings import SpoutConfig
from tests.support.consumer.world import SteppedWorld

FIRST = "shardId-000000000000"


@pytest.fixture
def world() -> SteppedWorld:
    return SteppedWorld(scheme="text")


def test_a_new_deployment_begins_again_and_its_restarts_go_on(world: SteppedWorld) -> None:
    world.put("one", "two")
    assert world.runs() == ["one", "two"]
    deployed = {"start_again": "trim_horizon", "deployment": "v2"}
    assert world.runs(**deployed) == ["one", "two"]
    world.put("three")
    assert world.runs(**deployed) == ["three"]
    assert world.runs(start_again="trim_horizon", deployment="v3") == ["one", "two", "three"]
    assert world.runs(**deployed) == [], "v2 has begun again before"
    assert world.runs() == []


def test_also_over_a_split_whose_parent_was_over(world: SteppedWorld) -> None:
    world.put("one")
    world.stream.split(FIRST)
    world.put("two", "three")
    assert sorted(world.runs()) == ["one", "three", "two"]
    again = world.runs(start_again="trim_horizon", deployment="v2")
    assert again[0] == "one", "parents before children"
    assert sorted(again) == ["one", "three", "two"]


def test_of_members_that_start_together_the_first_does_it(world: SteppedWorld) -> None:
    world.put("one", "two")
    world.runs()
    deployed = {"start_again": "trim_horizon", "deployment": "v2"}
    first, second = world.spout(**deployed), world.spout(**deployed)
    assert sorted(world.handles(first) + world.handles(second)) == ["one", "two"]


def test_latest_is_resolved_once_for_a_deployment(world: SteppedWorld) -> None:
    world.put("old")
    world.clock.advance(1)
    deployed = {"start_again": "latest", "deployment": "v2"}
    spout = world.spout(**deployed)
    spout.crash()
    world.clock.advance(1)
    world.put("while down")
    assert world.runs(**deployed) == ["while down"]


def test_it_is_refused_while_an_older_deployment_runs(world: SteppedWorld) -> None:
    world.put("one")
    old = world.spout()
    world.handles(old)
    with pytest.raises(ConsumerAlive):
        world.spout(start_again="trim_horizon", deployment="v2")
    old.close()
    assert world.runs(start_again="trim_horizon", deployment="v2") == ["one"]


def test_a_deployment_that_is_only_named_changes_nothing(world: SteppedWorld) -> None:
    world.put("one")
    assert world.runs() == ["one"]
    assert world.runs(deployment="v2") == []


def test_it_says_from_where_to_where(world: SteppedWorld, caplog: pytest.LogCaptureFixture) -> None:
    world.runs()
    with caplog.at_level(logging.WARNING):
        world.runs(start_again="2023-11-14T00:00:00Z", deployment="v2")
        world.runs(start_again="2023-11-14T00:00:00Z", deployment="v2")
    said = [record.getMessage() for record in caplog.records if "begins again" in record.getMessage()]
    assert said == [
        (
            "position: billing begins again at AT_TIMESTAMP(2023-11-14T00:00:00.000Z), for deployment v2; its "
            "stored progress, begun at TRIM_HORIZON, is given up"
        )
    ]


def test_without_a_deployment_it_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"start_again.*deployment as well"):
        SpoutConfig.of(stream="orders", app="billing", start_again="latest")
