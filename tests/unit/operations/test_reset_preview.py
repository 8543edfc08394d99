"""A preview counts, shard by shard, what a reset would bring again and what it would leave out."""

import pytest

from kinesis_spout.model.errors import AccessDenied, ConsumerAlive
from kinesis_spout.operations import checkpoints
from kinesis_spout.operations.audit import Operator
from kinesis_spout.operations.checkpoints import ResetEffect, preview_reset, reset_as_previewed
from kinesis_spout.operations.errors import WrongArguments
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.testing import InMemoryShardGetter
from shard_state import SHARD_END, SequenceNumber
from tests.unit.cli.fake_world import FakeWorld

CONFIG = SpoutConfig.of(app="billing", stream="orders")
BY = Operator(who="ann", why="a test")


@pytest.fixture
def world() -> FakeWorld:
    return FakeWorld(shards=1)


def stored(world: FakeWorld, records: int, **progress: object) -> list[int]:
    """Let a consumer that has gone have stored this of a shard with so many records; give their numbers."""
    numbers = []
    for _ in range(records):
        numbers.append(int(world.kinesis.put(b"x").sequence_number))
        world.clock.advance(1.0)
    consumer = world.consumer()
    made = {name: value(numbers) if callable(value) else value for name, value in progress.items()}
    world.store(consumer, world.shard_ids[0], **made)
    consumer.close()
    return numbers


def preview(world: FakeWorld, to: str) -> ResetEffect:
    (effect,) = preview_reset(world, CONFIG, to, ()).effects
    return effect


def counts(effect: ResetEffect) -> tuple[str, str]:
    return str(effect.again), str(effect.skipped)


def test_finished_records_beyond_the_checkpoint_come_again_too(world: FakeWorld) -> None:
    def holes(numbers: list[int]) -> tuple[tuple[SequenceNumber, SequenceNumber], ...]:
        return ((SequenceNumber(numbers[5]), SequenceNumber(numbers[7])),)

    stored(world, 10, base=lambda numbers: SequenceNumber(numbers[2]), holes=holes)
    assert counts(preview(world, "trim_horizon")) == ("5", "0")
    assert counts(preview(world, "latest")) == ("0", "5")


def test_a_shard_that_is_over_comes_again_from_the_target_on(world: FakeWorld) -> None:
    stored(world, 6, base=SHARD_END)
    assert counts(preview(world, "trim_horizon")) == ("6", "0")
    middle = str(world.clock.time() - 2.5)
    assert counts(preview(world, middle)) == ("2", "0")


def test_a_time_before_the_checkpoint_brings_what_arrived_since(world: FakeWorld) -> None:
    stored(world, 6, base=lambda numbers: SequenceNumber(numbers[3]))
    effect = preview(world, str(world.clock.time() - 4.5))
    assert counts(effect) == ("2", "0")
    assert effect.again is not None
    assert effect.again.oldest == world.clock.time() - 4


def test_counting_ends_at_its_limit(world: FakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "_COUNTED_RECORDS", 4)
    monkeypatch.setattr(checkpoints, "_PAGE_RECORDS", 2)
    stored(world, 10, base=SHARD_END)
    assert counts(preview(world, "trim_horizon")) == ("4 or more", "0")


def test_of_many_shards_only_the_first_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "_COUNTED_SHARDS", 1)
    world = FakeWorld(shards=3)
    world.consumer().close()
    effects = preview_reset(world, CONFIG, "trim_horizon", ()).effects
    assert [each.again is None for each in effects] == [False, True, True]


def test_what_kinesis_refuses_is_the_problem_of_its_shard(
    world: FakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AccessDenied("no GetRecords for you")

    stored(world, 2)
    monkeypatch.setattr(InMemoryShardGetter, "read", refuse)
    effect = preview(world, "trim_horizon")
    assert (effect.again, effect.problem) == (None, "no GetRecords for you")


def test_latest_is_the_time_of_the_preview(world: FakeWorld) -> None:
    stored(world, 2)
    target = preview_reset(world, CONFIG, "latest", ()).target
    world.clock.advance(60.0)
    reset_as_previewed(world, CONFIG, target, (), expected=1, by=BY)
    (checkpoint,) = world.stored().values()
    assert checkpoint.start.timestamp == world.clock.time() - 60


def test_a_reset_that_would_change_another_number_of_shards_is_refused(world: FakeWorld) -> None:
    stored(world, 2)
    with pytest.raises(WrongArguments, match="expected 2 shards to change, got 1"):
        reset_as_previewed(world, CONFIG, "trim_horizon", (), expected=2, by=BY)


def test_while_a_consumer_lives_there_is_no_preview(world: FakeWorld) -> None:
    world.consumer()
    with pytest.raises(ConsumerAlive):
        preview_reset(world, CONFIG, "latest", ())
