"""Commands and a setting that names several streams."""

import pytest

from kinesis_spout.operations.errors import WrongArguments
from kinesis_spout.operations.world import configs_of
from kinesis_spout.settings import SpoutConfig
from tests.unit.cli.fake_world import FakeWorld


def streams_of(setting: str) -> list[str]:
    config = SpoutConfig.of(stream=setting, app="billing")
    return [each.stream for each in configs_of(FakeWorld(), config)]


def test_names_stay_and_patterns_find_others() -> None:
    assert streams_of("orders") == ["orders"]
    assert streams_of("refunds,*r*") == ["refunds", "orders", "parcels"]


def test_a_pattern_that_finds_nothing_is_told() -> None:
    with pytest.raises(WrongArguments, match="finds none"):
        streams_of("returns-*")


def test_a_view_is_shown_for_each_stream() -> None:
    world = FakeWorld()
    out, err = world.call("shards", "--stream", "order?", "--app", "billing")
    assert "shardId-000000000000" in out
    assert world.opened[0] == "names"
    assert "Traceback" not in err


def test_a_command_that_changes_one_stream_refuses_several() -> None:
    world = FakeWorld()
    _, err = world.call("put", "data", "--stream", "orders,refunds", exit_code=2)
    assert "expected one stream with this command" in err
