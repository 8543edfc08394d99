"""``checkpoints`` shows, resets and forgets progress."""

import pytest

from kinesis_spout.model.errors import StreamRecreated
from kinesis_spout.testing import InMemoryStream
from shard_state import SHARD_END, Checkpoint, Position, SequenceNumber
from tests.unit.cli.fake_world import SETTINGS, FakeWorld

TRIM_HORIZON = Position.trim_horizon()


def ended(world: FakeWorld) -> list[str]:
    """Let a consumer finish a parent and begin a child, and leave. Gives the parent and its children."""
    (parent,) = world.shard_ids
    consumer = world.consumer()
    world.store(consumer, parent, base=SHARD_END)
    children = [shard.shard_id for shard in world.kinesis.split(parent)]
    world.store(consumer, children[0], base=SequenceNumber(7))
    consumer.close()
    return [parent, *children]


def reset(world: FakeWorld, to: str, *more: str, exit_code: int = 0) -> str:
    return world.call("checkpoints", "reset", "--to", to, "--yes", *more, *SETTINGS, exit_code=exit_code)[1]


# -- show


def test_show_needs_no_kinesis() -> None:
    world = FakeWorld()
    world.consumer()
    shown = world.json("checkpoints", "show")
    assert world.opened == ["progress"]
    assert shown["members"] == ["consumer"]
    assert shown["begun"]["start"] == "TRIM_HORIZON"
    assert [row["shard_id"] for row in shown["shards"]] == world.shard_ids


def test_show_gives_everything_that_is_stored() -> None:
    world = FakeWorld(shards=1)
    (shard_id,) = world.shard_ids
    world.store(
        world.consumer(),
        shard_id,
        base=SequenceNumber(5),
        holes=((SequenceNumber(6), SequenceNumber(9)),),
        anchor=SequenceNumber(6),
        attempts=((SequenceNumber(6), 2),),
    )
    (row,) = world.json("checkpoints", "show")["shards"]
    assert (row["checkpoint"], row["goes_on_at"]) == ("5", "AFTER_SEQUENCE_NUMBER(5)")
    assert (row["owner"], row["epoch"], row["anchor"]) == ("consumer", 1, "6")
    assert (row["holes"], row["unfinished"]) == ([["6", "9"]], [{"sequence_number": "6", "attempts": 2}])


def test_show_says_which_shards_a_shard_came_from() -> None:
    world = FakeWorld(shards=1)
    parent, *children = ended(world)
    world.zookeeper.put(parent, Checkpoint(start=TRIM_HORIZON).encode())
    world.zookeeper.put(children[0], Checkpoint(start=TRIM_HORIZON, parents=(parent,)).encode())
    parents = {row["shard_id"]: row["parents"] for row in world.json("checkpoints", "show")["shards"]}
    assert parents == {parent: [], children[0]: [parent]}


def test_show_says_what_cannot_be_read_and_shows_the_others() -> None:
    world = FakeWorld()
    first, second = world.shard_ids
    world.consumer()
    world.zookeeper.put(first, b"{")
    rows = world.json("checkpoints", "show", exit_code=4)["shards"]
    assert set(rows[0]) == set(rows[1])
    assert first in rows[0]["unreadable"]
    assert (rows[1]["shard_id"], rows[1]["checkpoint"]) == (second, "SHARD_START")
    out, err = world.call("checkpoints", "show", *SETTINGS, exit_code=4)
    assert "unreadable" in out
    assert first in err


def test_show_before_the_first_start_is_empty() -> None:
    world = FakeWorld()
    assert world.json("checkpoints", "show")["begun"] is None
    assert "nothing is stored" in world.call("checkpoints", "show", *SETTINGS)[1]


# -- reset


def test_a_reset_to_the_beginning_sets_parents_and_children_back() -> None:
    world = FakeWorld(shards=1)
    shard_ids = ended(world)
    reset(world, "trim_horizon")
    stored = world.stored()
    assert set(stored) == set(shard_ids)
    assert {checkpoint.read_from for checkpoint in stored.values()} == {TRIM_HORIZON}
    assert [checkpoint.parents for checkpoint in stored.values()] == [(), *[(shard_ids[0],)] * 2]
    assert [row["state"] for row in world.json("shards")["shards"]] == ["ready", "waiting", "waiting"]


def test_a_reset_to_now_leaves_no_child_at_its_oldest_record() -> None:
    """A child that nobody had begun would begin at TRIM_HORIZON, before the time that was asked for."""
    world = FakeWorld(shards=1)
    shard_ids = ended(world)
    reset(world, "latest")
    now = Position.at_timestamp(world.clock.time())
    assert {shard_id: checkpoint.read_from for shard_id, checkpoint in world.stored().items()} == (
        dict.fromkeys(shard_ids, now)
    )


def test_a_reset_to_a_time_takes_any_zone() -> None:
    world = FakeWorld(shards=1)
    world.consumer().close()
    reset(world, "2020-01-01T01:00:00+01:00")
    (checkpoint,) = world.stored().values()
    assert checkpoint.start == Position.at_timestamp(1_577_836_800.0)


def test_shards_that_are_not_listed_any_more_keep_what_is_stored() -> None:
    world = FakeWorld(shards=1)
    consumer = world.consumer()
    world.store(consumer, "shardId-000000000098", base=SHARD_END)
    world.store(consumer, "shardId-000000000099", base=SequenceNumber(3))
    consumer.close()
    reset(world, "trim_horizon")
    stored = world.stored()
    assert stored["shardId-000000000098"].is_shard_end
    assert stored["shardId-000000000099"].base == SequenceNumber(3)


def test_a_reset_mends_what_cannot_be_read_listed_or_not() -> None:
    world = FakeWorld(shards=1)
    world.consumer().close()
    (listed,) = world.shard_ids
    gone = "shardId-000000000099"
    for shard_id in (listed, gone):
        world.zookeeper.put(shard_id, b"{")
    reset(world, "trim_horizon")
    stored = world.stored()
    assert stored[listed].read_from == TRIM_HORIZON
    assert stored[gone].is_shard_end, "nothing is left to read of it"


def test_a_sequence_number_is_the_first_record_to_be_delivered() -> None:
    world = FakeWorld(shards=1)
    (shard_id,) = world.shard_ids
    sequence = world.kinesis.put(b"x", "k").sequence
    world.consumer().close()
    reset(world, f"at_sequence_number {sequence}", "--shard", shard_id)
    assert world.stored()[shard_id].read_from == Position.at(sequence)


def test_a_sequence_number_inside_an_aggregate_leaves_its_first_part_finished() -> None:
    world = FakeWorld(shards=1)
    (shard_id,) = world.shard_ids
    number = world.kinesis.put(b"x", "k").sequence.number
    world.consumer().close()
    reset(world, f"at_sequence_number {number}:3", "--shard", shard_id)
    assert world.stored()[shard_id].base == SequenceNumber(number, 2)


def test_a_sequence_number_that_is_not_of_the_shard_is_refused_at_once() -> None:
    world = FakeWorld(shards=1)
    world.consumer().close()
    before = world.stored()
    reset(world, "at_sequence_number 1" + "0" * 50, "--shard", world.shard_ids[0], exit_code=3)
    assert world.stored() == before


def test_only_the_chosen_shards_are_set() -> None:
    world = FakeWorld()
    consumer = world.consumer()
    first, second = world.shard_ids
    for shard_id in (first, second):
        world.store(consumer, shard_id, base=SequenceNumber(5))
    consumer.close()
    reset(world, "trim_horizon", "--shard", second)
    stored = world.stored()
    assert (stored[first].base, stored[second].read_from) == (SequenceNumber(5), TRIM_HORIZON)


@pytest.mark.parametrize(
    ("to", "more", "exit_code", "message"),
    [
        ("yesterday", (), 2, "trim_horizon, latest"),
        ("2020-01-01", (), 2, "zone"),
        ("2999-01-01T00:00:00Z", (), 2, "future"),
        ("at_sequence_number 123", (), 2, "exactly one"),
        ("at_sequence_number " + "1" * 200, ("--shard", "x"), 2, "--to"),
        ("1" * 56, ("--shard", "x"), 2, "at_sequence_number"),
        ("latest", ("--shard", "shardId-9"), 1, "shardId-9"),
    ],
)
def test_a_wrong_target_is_refused(to: str, more: tuple[str, ...], exit_code: int, message: str) -> None:
    world = FakeWorld()
    world.consumer().close()
    before = world.stored()
    assert message in reset(world, to, *more, exit_code=exit_code)
    assert world.stored() == before


def test_a_reset_is_refused_while_a_consumer_lives_and_names_it() -> None:
    world = FakeWorld()
    world.consumer("host-1-abc")
    err = reset(world, "latest", exit_code=5)
    assert "host-1-abc" in err
    assert "next: stop them" in err
    assert "stream" not in world.opened, "Kinesis is not asked in vain"


def test_a_reset_is_refused_by_the_store_when_a_consumer_starts_meanwhile() -> None:
    world = FakeWorld()
    world.consumer().close()

    class StartsLate(FakeWorld):
        def stream(self, config: object) -> object:  # type: ignore[override]
            world.consumer("late")
            return FakeWorld.stream(self, config)  # type: ignore[arg-type]

    late = StartsLate()
    late.zookeeper, late.kinesis = world.zookeeper, world.kinesis
    assert "late" in reset(late, "latest", exit_code=5)


def test_a_reset_must_be_confirmed() -> None:
    world = FakeWorld()
    world.consumer().close()
    before = world.stored()
    out, err = world.call("checkpoints", "reset", "--to", "latest", *SETTINGS, exit_code=2)
    assert world.shard_ids[0] in out, "what would be done is shown"
    assert "--yes" in err
    assert world.stored() == before


def test_before_the_first_start_there_is_nothing_to_reset() -> None:
    assert "--initial-position" in reset(FakeWorld(), "latest", exit_code=4)


def test_a_reset_says_what_it_did() -> None:
    world = FakeWorld(shards=1)
    world.consumer().close()
    moves = world.json("checkpoints", "reset", "--to", "trim_horizon", "--yes")
    assert moves == [
        {"shard_id": world.shard_ids[0], "before": "TRIM_HORIZON", "after": "TRIM_HORIZON", "reason": None}
    ]


# -- a stream made again, and forget


def test_progress_on_a_stream_made_again_is_not_reset_but_can_be_forgotten() -> None:
    world = FakeWorld()
    world.consumer().close()
    world.clock.advance(3600)
    world.kinesis = InMemoryStream("orders", clock=world.clock)
    with pytest.raises(StreamRecreated, match="checkpoints forget"):
        world.consumer("next")
    assert "checkpoints forget" in reset(world, "latest", exit_code=4)

    forgotten = world.json("checkpoints", "forget", "--yes")
    assert len(forgotten["forgotten"]) == 2
    world.consumer("next")
    assert world.stored() == dict.fromkeys(world.shard_ids, Checkpoint(start=TRIM_HORIZON, parents=()))


def test_forgetting_needs_no_kinesis_but_a_confirmation() -> None:
    world = FakeWorld()
    world.consumer().close()
    world.call("checkpoints", "forget", *SETTINGS, exit_code=2)
    assert len(world.stored()) == 2
    world.call("checkpoints", "forget", "--yes", *SETTINGS)
    assert world.stored() == {}
    assert set(world.opened) == {"progress"}


def test_forgetting_is_refused_while_a_consumer_lives() -> None:
    world = FakeWorld()
    world.consumer("host-1-abc")
    _, err = world.call("checkpoints", "forget", "--yes", *SETTINGS, exit_code=5)
    assert "host-1-abc" in err


def test_there_must_be_something_to_forget() -> None:
    FakeWorld().call("checkpoints", "forget", "--yes", *SETTINGS, exit_code=4)


# -- a misspelt application


@pytest.mark.parametrize(
    "command",
    [
        ("shards",),
        ("checkpoints", "show"),
        ("checkpoints", "reset", "--to", "latest", "--yes"),
        ("checkpoints", "forget", "--yes"),
    ],
)
def test_an_application_that_has_not_begun_is_refused_with_those_that_have(command: tuple[str, ...]) -> None:
    world = FakeWorld()
    world.others = [("audit", "clicks"), ("billings", "orders")]
    out, err = world.call(*command, *SETTINGS, exit_code=4)
    assert out == ""
    assert "audit on clicks, billings on orders" in err
    assert "got billing on orders, which has not: did you mean billings on orders?" in err


def test_an_application_that_has_begun_is_shown_beside_others() -> None:
    world = FakeWorld()
    world.others = [("billings", "orders")]
    world.consumer().close()
    assert len(world.json("checkpoints", "show")["shards"]) == 2
