"""What the plain-Python door does when Kinesis refuses: the same as the others."""

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.kinesis.retry_policy import SLOW_SECONDS
from kinesis_spout.model.errors import AccessDenied, KeyUnavailable, KinesisError, Throttled, Unavailable
from kinesis_spout.plain.record_spout import RecordSpout
from kinesis_spout.testing import InMemoryShardLister, InMemoryStream
from shard_state import Shard
from tests.support.consumer.world import FIRST, NEVER, World, opened, values_of

if TYPE_CHECKING:
    from kinesis_spout.plain.stream_tuples import Emitted


def spout_that_has_read(world: World) -> RecordSpout:
    spout = world.spout()
    world.put("before")
    assert values_of(world.settle(spout, 1)) == ["before"]
    return spout


def take_at_last(world: World, spout: RecordSpout) -> str:
    """Take one tuple, however long that is in this world; the polling thread waits in real time."""
    prefetcher = opened(spout)[1]._prefetcher
    taken: list[Emitted] = []

    def is_here() -> bool:
        prefetcher.look()
        emitted = spout.next_tuple()
        if emitted is not None:
            taken.append(emitted)
        return bool(taken)

    world.until(is_here, "a tuple", step_seconds=0.5)  # it may be minutes
    spout.ack(taken[0].message_id)
    return str(taken[0].values)


@pytest.mark.parametrize("error", [AccessDenied("taken away"), KeyUnavailable("key disabled")])
def test_what_only_a_person_can_mend_makes_the_shard_wait_and_is_tried_again_slowly(
    world: World, error: KinesisError, caplog: pytest.LogCaptureFixture
) -> None:
    spout = spout_that_has_read(world)
    world.stream.fail_next(error, times=3)
    world.put("after")
    refused_at = world.clock.monotonic()
    assert take_at_last(world, spout) == "after"
    assert world.clock.monotonic() - refused_at >= 2 * SLOW_SECONDS
    assert spout.last_error is None
    said = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) == 1
    assert FIRST in said[0].getMessage()
    assert str(error) in said[0].getMessage()


def test_access_denied_at_the_start_ends_the_spout_with_the_error(world: World) -> None:
    world.stream.fail_next(AccessDenied("never had it"), times=100)
    spout = world.spout()
    world.put("one")
    with pytest.raises(AccessDenied, match="never had it"):
        world.take(spout, 1)
    with pytest.raises(AccessDenied, match="never had it"):
        spout.next_tuple()


def test_errors_that_may_pass_are_logged_with_their_shard_and_throttles_are_counted(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    spout = spout_that_has_read(world)
    world.stream.fail_next(Unavailable("resets"), times=5)
    world.stream.throttle(times=3)
    world.put("after")
    assert take_at_last(world, spout) == "after"
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) == 1
    assert FIRST in said[0]
    assert "resets" in said[0]
    assert spout.counters.throttled == 3


class RefusingLister(InMemoryShardLister):
    """A lister that is refused from some moment on, for as long as a test says."""

    def __init__(self, stream: InMemoryStream) -> None:
        super().__init__(stream)
        self.refused = 0
        self.error: KinesisError | None = None

    def list_shards(self) -> list[Shard]:
        if self.error is not None:
            self.refused += 1
            raise self.error
        return super().list_shards()


def spout_with(world: World, lister: RefusingLister, **settings: Any) -> RecordSpout:
    return RecordSpout(
        ports=replace(world.ports(), lister=lister),
        scheme="text",
        stream="orders",
        app="billing",
        initial_position="trim_horizon",
        commit_interval_seconds=0.02,
        **settings,
    )


@pytest.mark.parametrize("error", [AccessDenied("no ListShards any more"), Throttled("too many lists")])
def test_shards_that_cannot_be_listed_now_are_listed_later_and_the_others_are_read_on(
    world: World, error: KinesisError
) -> None:
    lister = RefusingLister(world.stream)
    with spout_with(world, lister, shard_list_interval_seconds=1.0).open() as spout:
        world.put("before")
        world.settle(spout, 1)
        lister.error = error
        world.until(lambda: spout.last_error is error, "the refusal is seen")
        world.put("meanwhile")
        assert values_of(world.settle(spout, 1)) == ["meanwhile"]
        lister.error = None
        world.stream.split(FIRST)
        world.put("in a child")
        assert values_of(world.settle(spout, 1, seconds=1.0)) == ["in a child"]
        assert spout.last_error is None


def test_a_refused_listing_is_not_asked_for_again_at_once_because_the_end_of_a_shard_was_read(
    world: World,
) -> None:
    lister = RefusingLister(world.stream)
    with spout_with(world, lister, shard_list_interval_seconds=NEVER).open() as spout:
        world.put("last")
        lister.error = AccessDenied("no ListShards any more")
        world.stream.split(FIRST)
        world.settle(spout, 1)
        consumer, readers = opened(spout)
        until = world.clock.monotonic() + 60

        def a_minute_is_over() -> bool:
            with consumer.lock:
                assert not readers.is_done(), "the children are not known yet"
            return world.clock.monotonic() > until

        what = "a minute, while whoever iterates asks whether all is over"
        world.until(a_minute_is_over, what, step_seconds=0.25)
        assert 1 <= lister.refused <= 60 / SLOW_SECONDS + 2


def test_access_denied_to_the_list_at_the_start_is_raised_at_once(world: World) -> None:
    lister = RefusingLister(world.stream)
    lister.error = AccessDenied("never had it")
    with pytest.raises(AccessDenied, match="never had it"):
        spout_with(world, lister).open()


def test_a_position_that_is_refused_but_was_not_trimmed_repeats_nothing(world: World) -> None:
    world.fail_on_data_loss = False
    first = world.spout()
    world.put("one", "two")
    world.settle(first, 2)
    first.close()

    world.stream.refuse_sequence_numbers()
    world.put("three")
    spout = world.spout()
    assert values_of(world.settle(spout, 1)) == ["three"]
