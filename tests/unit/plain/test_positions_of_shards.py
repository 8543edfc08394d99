"""``initial_position`` and ``start_again`` shard by shard."""

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.kinesis.aggregated_record import UserRecord
from kinesis_spout.model.errors import DataLoss, InvalidConfig
from kinesis_spout.testing import (
    SteppedSpout,
)
from tests.support.consumer.world import SteppedWorld

if TYPE_CHECKING:
    from kinesis_spout.model.record import Record

FIRST, SECOND, THIRD = (f"shardId-{number:012}" for number in range(3))


class World(SteppedWorld):
    """A stream of three shards, with five records on each: a0 to a4 on the first, b0 and c0 on the others."""

    def __init__(self) -> None:
        super().__init__(shards=3, scheme="text")
        del self.settings["initial_position"]
        self.records: dict[str, Record] = {}
        for number in range(5):
            self.put_on_each(number)

    def put_on_each(self, number: int) -> None:
        """Put a record on each of the three shards."""
        for letter, shard in zip("abc", range(3), strict=True):
            text = f"{letter}{number}"
            hash_key = str(shard * 2**128 // 3 + 1)
            self.records[text] = self.stream.put(text.encode(), "k", explicit_hash_key=hash_key)

    def place(self, type_: str, text: str) -> str:
        return f"{type_}_sequence_number {self.records[text].sequence_number}"

    def comes(self, spout: SteppedSpout, *, seconds: float = 5.0) -> str:
        """What comes, and is acked, in so many seconds of the clock."""
        return " ".join(sorted(self.handles(spout, seconds=seconds)))

    def came(self, **settings: Any) -> str:
        """What a process handles that starts, and is stopped cleanly."""
        return " ".join(sorted(self.runs(**settings)))


@pytest.fixture
def world() -> World:
    return World()


def test_named_shards_begin_at_or_after_their_number_and_the_others_at_their_oldest_record(
    world: World,
) -> None:
    positions = {FIRST: world.place("at", "a3"), SECOND: world.place("after", "b3")}
    assert world.came(initial_position=positions) == "a3 a4 b4 c0 c1 c2 c3 c4"


def test_the_text_of_format_kinesis_means_the_same(world: World) -> None:
    iterator = {"iteratorType": "AT_SEQUENCE_NUMBER", "iteratorPosition": world.records["a4"].sequence_number}
    text = json.dumps({FIRST: iterator, SECOND: "latest", THIRD: {"at_timestamp": world.clock.time()}})
    assert world.came(initial_position=text).startswith("a4 ")


def test_later_starts_go_on_from_progress_whatever_it_says_then(world: World) -> None:
    assert world.came(initial_position={FIRST: world.place("after", "a4")}).startswith("b0")
    world.put_on_each(5)
    assert world.came(initial_position={FIRST: world.place("at", "a0")}) == "a5 b5 c5"
    assert world.came(initial_position={"shardId-000000000099": "latest"}) == ""


def test_a_deployment_begins_again_there_once(world: World) -> None:
    world.came(initial_position="trim_horizon")
    deployed = {
        "start_again": {
            FIRST: world.place("at", "a4"),
            SECOND: world.place("at", "b4"),
            THIRD: world.place("after", "c4"),
        },
        "deployment": "v2",
    }
    assert world.came(**deployed) == "a4 b4"
    assert world.came(**deployed) == ""


def test_latest_of_one_shard_is_resolved_once(world: World) -> None:
    at_latest = {FIRST: "latest", SECOND: world.place("at", "b4"), THIRD: "latest"}
    world.clock.advance(1)
    spout = world.spout(initial_position=at_latest)
    spout.crash()
    world.clock.advance(60)
    world.put_on_each(5)
    world.clock.advance(60)
    assert world.came(initial_position=at_latest) == "a5 b4 b5 c5"


def test_children_of_a_named_shard_are_read_from_their_oldest_record(world: World) -> None:
    world.stream.split(FIRST)
    world.put_on_each(5)
    positions = {
        FIRST: world.place("after", "a2"),
        SECOND: world.place("after", "b4"),
        THIRD: world.place("after", "c4"),
    }
    spout = world.spout(initial_position=positions)
    assert world.comes(spout) == "a3 a4 a5 b5 c5"
    world.stream.split(SECOND)
    world.put_on_each(6)
    assert world.comes(spout, seconds=30) == "a6 b6 c6"


def test_a_position_may_be_a_user_record_of_an_aggregated_one(world: World) -> None:
    whole, *_ = world.stream.put_aggregated(
        UserRecord("k", payload) for payload in (b"x0", b"x1", b"x2", b"x3")
    )
    number = whole.sequence_number
    others = {shard: "latest" for shard in (FIRST, SECOND, THIRD) if shard != whole.shard_id}
    world.clock.advance(1)
    at = {whole.shard_id: f"at_sequence_number {number}:2"}
    assert world.came(initial_position=others | at) == "x2 x3"
    after = {whole.shard_id: f"after_sequence_number {number}:2"}
    assert world.came(start_again=others | after, deployment="v2") == "x3"
    first = {whole.shard_id: f"at_sequence_number {number}:0"}
    assert world.came(start_again=others | first, deployment="v3") == "x0 x1 x2 x3"


@pytest.mark.parametrize("deployment", [None, "v2"])
def test_a_shard_that_the_stream_has_not_is_one_error_that_names_those_it_has(
    world: World, deployment: str | None
) -> None:
    unknown = {"shardId-000000000009": world.place("at", "a0"), FIRST: "latest"}
    setting: dict[str, Any] = {"initial_position": unknown}
    if deployment is not None:
        world.came(initial_position="trim_horizon")
        setting = {"start_again": unknown, "deployment": deployment}
    with pytest.raises(InvalidConfig) as refused:
        world.spout(**setting)
    name = next(iter(setting))
    assert str(refused.value).startswith(
        f"{name}: expected shards that the stream has ({FIRST}, {SECOND}, {THIRD}), got shardId-000000000009; "
    )
    world.put_on_each(5)
    assert world.came(initial_position="trim_horizon").endswith("c5"), "nothing was stored by the refusal"


def test_a_number_behind_retention_is_data_loss(world: World) -> None:
    positions = {FIRST: world.place("at", "a1"), SECOND: "latest", THIRD: "latest"}
    world.clock.advance(1)
    world.stream.trim(FIRST, world.records["a2"].sequence)
    spout = world.spout(initial_position=positions)
    with pytest.raises(DataLoss, match=FIRST):
        world.comes(spout)
    spout.crash()
    world.clock.advance(60)
    assert world.came(initial_position=positions, fail_on_data_loss=False) == "a3 a4"


def test_the_log_says_where_each_named_shard_begins(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        world.came(initial_position={SECOND: "after_sequence_number 7"}, fail_on_data_loss=False)
    [said] = [text for text in caplog.messages if text.startswith("position: ")]
    assert f"from TRIM_HORIZON, {SECOND} from AFTER_SEQUENCE_NUMBER(7) (initial_position {{" in said


def test_a_time_that_is_yet_to_come_is_refused(world: World) -> None:
    with pytest.raises(InvalidConfig, match=r"^initial_position: expected a time that is over.*yet to come"):
        world.spout(initial_position={FIRST: {"at_timestamp": world.clock.time() + 60}})
