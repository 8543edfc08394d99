"""Retries whose data was not kept are read again: within the shard's limits, blaming nobody."""

from collections.abc import Callable, Sequence

import pytest

from kinesis_spout.kinesis.aggregated_record import UserRecord
from kinesis_spout.model.errors import AccessDenied, Throttled, Unavailable
from kinesis_spout.model.record import Record
from kinesis_spout.ports import Page, ShardGetter
from kinesis_spout.spark.driver.retry_data import TRIMMED, Reread, read_missing
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice
from kinesis_spout.testing import InMemoryShardGetter, InMemoryStream, ManualClock
from shard_state import Fate, Position, Redelivery, SliceKind, SliceOutcome, SlicePlan
from tests.unit.spark.driver.world import FIRST


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.stream = InMemoryStream(clock=self.clock)
        self.records = [self.stream.put(str(number).encode(), "key") for number in range(10)]
        self.opened = 0

    def open_getter(self, shard_id: str, position: Position) -> ShardGetter:
        self.opened += 1
        return InMemoryShardGetter(self.stream, shard_id, position)

    def reread(
        self,
        *numbers: int,
        kept: Sequence[int] = (),
        seconds: float = 60.0,
        open_getter: Callable[[str, Position], ShardGetter] | None = None,
    ) -> Reread:
        retries = tuple(
            Redelivery(sequence=self.records[number].sequence, attempt=number + 1) for number in numbers
        )
        plan = SlicePlan(
            shard_id=FIRST,
            epoch=1,
            kind=SliceKind.RETRY,
            limit=len(retries),
            position=Position.trim_horizon(),
            max_failures=len(retries),
            retries=retries,
        )
        work = WorkSlice(plan=plan, records=tuple(self.records[number] for number in kept))
        until = self.clock.monotonic() + seconds
        return read_missing(work, open_getter or self.open_getter, self.clock, until)


@pytest.fixture
def world() -> World:
    return World()


def payloads(records: Sequence[Record]) -> list[bytes]:
    return [record.data for record in records]


def test_what_was_not_kept_is_read_in_the_order_of_the_retries(world: World) -> None:
    reread = world.reread(7, 2, 5, kept=[2])

    assert payloads(reread.work.records) == [b"7", b"2", b"5"]
    assert (reread.gone, reread.unreached, reread.error) == ((), (), None)


def test_neighbours_are_read_with_one_call(world: World) -> None:
    reread = world.reread(1, 2, 3, 4)

    assert payloads(reread.work.records) == [b"1", b"2", b"3", b"4"]
    assert world.opened == 1


def test_reads_keep_to_the_shards_limit_though_each_place_has_its_getter(world: World) -> None:
    before = world.clock.monotonic()
    world.reread(8, 4, 0)

    assert world.opened == 3
    assert world.clock.monotonic() - before == pytest.approx(0.4)


def test_what_is_gone_is_given_up_and_the_rest_delivered(world: World) -> None:
    world.stream.trim(FIRST, world.records[1].sequence)
    reread = world.reread(0, 1, 2)
    result = reread.complete(WorkResult(plan=reread.work.plan, outcome=SliceOutcome()))

    assert payloads(reread.work.records) == [b"2"]
    assert result.gone == 2
    assert [(f.sequence, f.fate, f.attempt) for f in result.outcome.failures] == [
        (world.records[0].sequence, Fate.REJECTED, 1),
        (world.records[1].sequence, Fate.REJECTED, 2),
    ]
    assert [each.error for each in result.unfinished] == [TRIMMED, TRIMMED]


def test_what_the_time_does_not_suffice_for_is_held_uncounted_with_all_behind_it(world: World) -> None:
    reread = world.reread(8, 4, 0, 9, kept=[9], seconds=0.3)
    result = reread.complete(WorkResult(plan=reread.work.plan, outcome=SliceOutcome()))

    assert payloads(reread.work.records) == [b"8", b"4"]
    assert [(f.sequence, f.held, f.attempt) for f in result.outcome.failures] == [
        (world.records[0].sequence, True, 0),
        (world.records[9].sequence, True, 9),
    ]
    assert (result.gone, result.error) == (0, None)


@pytest.mark.parametrize("error", [Throttled("slower"), Unavailable("down")])
def test_errors_that_may_pass_are_waited_out(world: World, error: Throttled | Unavailable) -> None:
    world.stream.fail_next(error, times=2)
    reread = world.reread(3)

    assert payloads(reread.work.records) == [b"3"]
    assert reread.error is None


def test_an_error_that_outlasts_the_time_is_told_and_blames_nobody(world: World) -> None:
    world.stream.throttle(times=100)
    reread = world.reread(3, 4, seconds=5.0)

    assert isinstance(reread.error, Throttled)
    assert [retry.attempt for retry in reread.unreached] == [4, 5]


def test_refused_permissions_are_told_at_once(world: World) -> None:
    world.stream.fail_next(AccessDenied("no"))
    reread = world.reread(3)

    assert isinstance(reread.error, AccessDenied)
    assert len(reread.unreached) == 1


def test_an_empty_page_before_the_tip_is_not_the_end_of_a_record(world: World) -> None:
    """AWS: GetRecords may give nothing although more follows."""

    class EmptyAtFirst(InMemoryShardGetter):
        empty = 2

        def read(self, limit: int) -> Page:
            if self.empty:
                self.empty -= 1
                return Page(records=(), size_bytes=0, millis_behind_latest=5_000, at_end=False)
            return super().read(limit)

    reread = world.reread(
        3, open_getter=lambda shard_id, position: EmptyAtFirst(world.stream, shard_id, position)
    )

    assert payloads(reread.work.records) == [b"3"]


def test_user_records_are_read_again_one_by_one(world: World) -> None:
    inside = [UserRecord("key", f"inside {number}".encode()) for number in range(5)]
    world.records = [*world.stream.put_aggregated(inside), world.stream.put(b"after", "key")]

    reread = world.reread(3, 1, 5)

    assert payloads(reread.work.records) == [b"inside 3", b"inside 1", b"after"]
    assert [record.sub_sequence_number for record in reread.work.records] == [3, 1, None]
    assert world.opened == 2, "what lies behind the first is on its page"


def test_a_user_record_that_was_trimmed_is_given_up_by_its_own_number(world: World) -> None:
    world.records = world.stream.put_aggregated([UserRecord("key", b"a"), UserRecord("key", b"b")])
    world.stream.trim(FIRST, world.records[0].sequence)

    reread = world.reread(1)

    (gone,) = reread.complete(WorkResult(plan=reread.work.plan, outcome=SliceOutcome())).unfinished
    assert gone.record.sequence == world.records[1].sequence
