"""What the driver keeps for its batches: pages, records that wait, the packs of a batch."""

from collections.abc import Sequence
from queue import Queue
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from kinesis_spout.model.clock import SystemClock
from kinesis_spout.model.record import Record
from kinesis_spout.spark.driver.retry_data import RetryBuffer
from kinesis_spout.spark.driver.running_batches import HandlingTime, RunningBatches, pack
from kinesis_spout.spark.tasks.jobs import WORTH_A_TASK_SECONDS
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice
from shard_state import Position, SequenceNumber, SliceKind, SliceOutcome, SlicePlan

if TYPE_CHECKING:
    from kinesis_spout.consumer.ports import Ports
    from kinesis_spout.spark.driver.engine_settings import EngineSettings
    from kinesis_spout.spark.tasks.jobs import BatchRunner


def record(number: int, size: int = 10) -> Record:
    return Record(data=b"x" * size, sequence_number=str(number), shard_id="shard")


def works(count: int, kind: SliceKind = SliceKind.READ, *, size: int = 1) -> list[WorkSlice]:
    return [
        WorkSlice(
            plan=SlicePlan(
                shard_id=f"shard-{number}",
                epoch=1,
                kind=kind,
                limit=1,
                position=Position.trim_horizon(),
                max_failures=1,
            ),
            records=(record(number),) * size,
        )
        for number in range(count)
    ]


# pack


@pytest.mark.parametrize(
    ("slices", "parallelism", "sizes"),
    [(1, 4, [1]), (3, 4, [1, 1, 1]), (8, 4, [2, 2, 2, 2]), (100, 4, [8] * 9 + [7] * 4)],
)
def test_every_core_gets_work_before_slices_share_a_task(
    slices: int, parallelism: int, sizes: list[int]
) -> None:
    packs = pack(works(slices), per_task=8, parallelism=parallelism)

    assert [len(each) for each in packs] == sizes
    shards = [work.plan.shard_id for each in packs for work in each]
    assert sorted(shards) == sorted(work.plan.shard_id for work in works(slices))


@pytest.mark.parametrize("slices", [1, 2, 8, 1000])
def test_records_that_travel_need_no_more_tasks_than_there_are_cores(slices: int) -> None:
    packs = pack(works(slices, SliceKind.CARRIED), per_task=8, parallelism=2)

    assert len(packs) == min(slices, 2)
    assert max(map(len, packs)) - min(map(len, packs)) <= 1
    assert sum(map(len, packs)) == slices


def test_records_that_travel_are_spread_by_their_number() -> None:
    large, small = works(1, SliceKind.CARRIED, size=100), works(7, SliceKind.RETRY, size=10)
    packs = pack([*small, *large], per_task=8, parallelism=2)

    assert sorted(sum(len(work.records) for work in each) for each in packs) == [70, 100]


def handled(seconds: float | None, delivered: int = 10) -> WorkResult:
    (work,) = works(1, SliceKind.CARRIED)
    return WorkResult(plan=work.plan, outcome=SliceOutcome(), delivered=delivered, handling_seconds=seconds)


def tasks_for(handling: HandlingTime, slices: list[WorkSlice]) -> int:
    return len(pack(slices, per_task=8, parallelism=4, handling=handling))


def test_a_few_records_of_a_quick_handler_share_one_task() -> None:
    handling = HandlingTime()
    handling.took([handled(0.0001), handled(0.0003)])

    assert tasks_for(handling, works(8, SliceKind.CARRIED, size=10)) == 1
    assert tasks_for(handling, works(8, SliceKind.CARRIED, size=150)) == 3
    assert tasks_for(handling, works(8, SliceKind.CARRIED, size=10_000)) == 4


def test_a_slow_handler_gets_every_core() -> None:
    handling = HandlingTime()
    handling.took([handled(0.5)])

    assert tasks_for(handling, works(8, SliceKind.CARRIED)) == 4


def test_every_core_gets_work_while_nothing_is_known_of_the_handler() -> None:
    handling = HandlingTime()
    handling.took([handled(None), handled(0.0, delivered=0)])

    assert tasks_for(handling, works(8, SliceKind.CARRIED)) == 4


def test_what_is_known_of_a_handler_follows_it_when_it_becomes_slow() -> None:
    handling = HandlingTime()
    handling.took([handled(0.0001)])
    assert tasks_for(handling, works(8, SliceKind.CARRIED)) == 1
    handling.took([handled(0.5)])

    assert tasks_for(handling, works(8, SliceKind.CARRIED)) == 4


def test_slices_that_are_read_are_spread_whatever_the_handler_takes() -> None:
    handling = HandlingTime()
    handling.took([handled(0.0001)])

    assert tasks_for(handling, [*works(4), *works(4, SliceKind.RETRY)]) == 4


def test_executors_that_come_after_the_start_get_tasks_too() -> None:
    cores, ended = [2], Queue[list[WorkResult] | Exception]()
    spread: list[int] = []

    class Runner:
        worth_a_task_seconds = WORTH_A_TASK_SECONDS

        def run(self, tag: str, packs: Sequence[Sequence[WorkSlice]]) -> list[WorkResult]:
            del tag
            spread.append(len(packs))
            return []

        def close(self) -> None:
            """Nothing is kept."""

    settings = SimpleNamespace(max_concurrent_batches=1, shards_per_task=8, parallelism=lambda: cores[0])
    running = RunningBatches(
        cast("BatchRunner", Runner()),
        cast("EngineSettings", settings),
        cast("Ports", SimpleNamespace(clock=SystemClock())),
        "test",
        call=lambda call: call(),
        done=lambda _, results: ended.put(results),
        failed=lambda _, error: ended.put(error),
    )
    for cores[0] in (2, 16, 4):
        running.launch(works(64, SliceKind.CARRIED), now=0.0)
        assert ended.get(timeout=60) == []
    running.close()

    assert spread == [2, 16, 4]


# RetryBuffer


def keep(buffer: RetryBuffer, kept: Record) -> None:
    buffer.keep("shard", [(kept.sequence, kept)])


def test_the_buffer_keeps_records_until_they_are_dropped_and_counts_their_bytes() -> None:
    buffer = RetryBuffer(lambda: 10_000)
    keep(buffer, record(1))
    keep(buffer, record(2))
    once = buffer.size_bytes
    keep(buffer, record(2))

    assert buffer.size_bytes == once
    assert buffer.get("shard", SequenceNumber(1)) == record(1)
    assert buffer.get("other", SequenceNumber(1)) is None
    buffer.drop("shard", [SequenceNumber(1), SequenceNumber(99)])
    buffer.drop_shard("shard")
    assert (buffer.size_bytes, buffer.get("shard", SequenceNumber(2))) == (0, None)


def test_a_full_buffer_takes_nothing_more_until_there_is_room() -> None:
    buffer = RetryBuffer(lambda: 1_500)
    keep(buffer, record(1, size=600))
    keep(buffer, record(2, size=600))

    assert buffer.get("shard", SequenceNumber(2)) is None
    buffer.drop("shard", [SequenceNumber(1)])
    keep(buffer, record(2, size=600))
    assert buffer.get("shard", SequenceNumber(2)) is not None


def test_a_record_that_comes_again_into_a_full_buffer_stays() -> None:
    """Its place is its own: weighed together with itself it would not fit."""
    buffer = RetryBuffer(lambda: 1_500)
    keep(buffer, record(1, size=600))
    again = record(1, size=600)
    again.attempt = 2
    keep(buffer, again)

    kept = buffer.get("shard", SequenceNumber(1))
    assert kept is not None
    assert (kept.attempt, buffer.size_bytes) == (2, 1_100)
