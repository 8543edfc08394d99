"""What a task leaves behind when it dies, and what came of its slices by that."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kinesis_spout.model.errors import HandlerKilledWorker
from kinesis_spout.model.record import Record
from kinesis_spout.spark.tasks import journal
from kinesis_spout.spark.tasks.delivery import DeliverySettings, HandlerDelivery, SliceDelivery
from kinesis_spout.spark.tasks.handler_runner import recover_job
from kinesis_spout.spark.tasks.handlers import ArrowHandler, RecordHandler
from kinesis_spout.spark.tasks.journal import Journal, Remains
from kinesis_spout.spark.tasks.recovery import recover
from kinesis_spout.spark.tasks.task import TaskSettings, run_slices
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice
from kinesis_spout.testing import InMemoryStream, ManualClock
from shard_state import Fate, Order, Position, Redelivery, SliceKind, SlicePlan
from tests.unit.spark.driver.world import FIRST, SECOND, StreamClient, task_settings

pytestmark = pytest.mark.no_second_run

NEVER = 1e9


class Task:
    """One task in a process of its own, whose handler may end it. Mutable."""

    def __init__(self, folder: Path, stream: InMemoryStream, **settings: object) -> None:
        self.file = folder / "0.0"
        # No slice may end because its process was slow, as one is that imports Arrow on a busy machine.
        self.settings: TaskSettings = task_settings(StreamClient(stream), max_seconds=3_600.0, **settings)

    def run(
        self, pack: list[WorkSlice], handle: Callable[[Record], None], *, arrow: bool = False
    ) -> Remains | None:
        """Run slices in a child; gives what it leaves behind, which may have died."""
        child = os.fork()
        if child == 0:
            try:
                self._run(pack, handle, arrow=arrow)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        return journal.read(self.file)

    def _run(self, pack: list[WorkSlice], handle: Callable[[Record], None], *, arrow: bool) -> None:
        def by_rows(batch: object, _: object) -> None:
            for data in batch.column("data").to_pylist():  # type: ignore[attr-defined]
                handle(Record(data=data, sequence_number="0"))

        handler = ArrowHandler(by_rows) if arrow else RecordHandler(handle, lambda record: record)

        def deliver(plan: SlicePlan, rules: DeliverySettings) -> SliceDelivery:
            return HandlerDelivery(plan, handler, rules)

        notes = Journal(self.file, len(pack))
        list(run_slices(pack, self.settings, deliver, notes))
        notes.close()


@pytest.fixture
def stream() -> InMemoryStream:
    return InMemoryStream("orders", shards=2, clock=ManualClock())


def put(stream: InMemoryStream, shard_id: str, count: int) -> list[Record]:
    number = 0
    while len(stream.records(shard_id)) < count:
        key = f"key-{number}"
        number += 1
        if stream._log_for(key).shard.shard_id == shard_id:
            stream.put(str(len(stream.records(shard_id))).encode(), key)
    return list(stream.records(shard_id))


def plan(kind: SliceKind, shard_id: str = FIRST, **changes: object) -> SlicePlan:
    fields: dict[str, object] = {
        "limit": 1_000,
        "max_failures": 1_000,
        "position": Position.trim_horizon(),
        **changes,
    }
    return SlicePlan(shard_id=shard_id, epoch=1, kind=kind, **fields)  # type: ignore[arg-type]


def acts(payload: bytes) -> Callable[[Record], None]:
    """Raises at record 1, and ends its process at the given one."""

    def handle(record: Record) -> None:
        if record.data == b"1":
            raise ValueError("no")
        if record.data == payload:
            os._exit(3)

    return handle


def failures(result: WorkResult) -> list[tuple[int, str, bool]]:
    errors = [unfinished.error for unfinished in result.unfinished]
    return [
        (failure.index, error, failure.fate is Fate.KILLED_WORKER)
        for failure, error in zip(result.outcome.failures, errors, strict=True)
    ]


@pytest.mark.parametrize("kind", [SliceKind.READ, SliceKind.CARRIED])
def test_a_death_blames_the_record_under_way_and_keeps_what_was_done_before(
    tmp_path: Path, stream: InMemoryStream, kind: SliceKind
) -> None:
    records = put(stream, FIRST, 10)
    work = WorkSlice(plan=plan(kind), records=() if kind is SliceKind.READ else tuple(records))
    task = Task(tmp_path, stream)
    remains = task.run([work], acts(b"6"))
    assert remains is not None
    (result,) = recover([work], remains, task.settings, "it died")

    assert (result.outcome.first, result.outcome.last) == (records[0].sequence, records[6].sequence)
    assert (result.outcome.count, result.delivered, result.plan) == (7, 7, work.plan)
    assert failures(result) == [(1, "ValueError: no", False), (6, "it died", True)]


def test_retries_that_were_not_reached_are_held(tmp_path: Path, stream: InMemoryStream) -> None:
    records = put(stream, FIRST, 4)
    retries = tuple(Redelivery(sequence=record.sequence, attempt=2) for record in records)
    work = WorkSlice(plan=plan(SliceKind.RETRY, retries=retries, limit=4), records=tuple(records))
    task = Task(tmp_path, stream)
    remains = task.run([work], acts(b"2"))
    assert remains is not None
    (result,) = recover([work], remains, task.settings, "it died")

    assert [(each.index, each.held, each.attempt) for each in result.outcome.failures] == [
        (1, False, 2),
        (2, False, 2),
        (3, True, 1),
    ]


def test_slices_that_had_ended_keep_their_result_and_those_that_had_not_begun_are_not_blamed(
    tmp_path: Path, stream: InMemoryStream
) -> None:
    records = tuple(put(stream, FIRST, 3))
    pack = [
        WorkSlice(plan=plan(SliceKind.CARRIED, shard_id), records=carried)
        for shard_id, carried in [("a", records[:1]), ("b", records[2:]), ("c", records[:2])]
    ]
    task = Task(tmp_path, stream)
    remains = task.run(pack, acts(b"2"))
    assert remains is not None
    done, died, untouched = recover(pack, remains, task.settings, "it died")

    assert (done.outcome.count, failures(done)) == (1, [])
    assert failures(died) == [(0, "it died", True)]
    assert (untouched.outcome.count, untouched.outcome.failures, untouched.lost) == (0, (), False)


def test_a_task_that_something_else_ended_blames_nobody(tmp_path: Path, stream: InMemoryStream) -> None:
    work = WorkSlice(plan=plan(SliceKind.CARRIED), records=tuple(put(stream, FIRST, 10)))
    task = Task(tmp_path, stream)
    remains = task.run([work], acts(b"6"))
    assert remains is not None
    (result,) = recover([work], remains, task.settings, None)

    assert result.outcome.count == 6
    assert failures(result) == [(1, "ValueError: no", False)]


def test_a_death_outside_of_any_record_says_nothing_of_what_was_not_finished(
    tmp_path: Path, stream: InMemoryStream
) -> None:
    work = WorkSlice(plan=plan(SliceKind.CARRIED), records=tuple(put(stream, FIRST, 3)))
    (result,) = recover([work], Remains(counts=(0,)), Task(tmp_path, stream).settings, "it died")

    assert result.lost


def test_rows_that_a_handler_had_together_are_suspected_together(
    tmp_path: Path, stream: InMemoryStream
) -> None:
    records = tuple(put(stream, FIRST, 10))
    work = WorkSlice(plan=plan(SliceKind.CARRIED, portion=4), records=records)
    task = Task(tmp_path, stream)
    remains = task.run([work], acts(b"6"), arrow=True)
    assert remains is not None
    (result,) = recover([work], remains, task.settings, "it died")

    assert (result.outcome.count, result.suspects) == (4, 4)
    assert failures(result) == [(1, "ValueError: no", False)]


def test_a_single_row_is_blamed(tmp_path: Path, stream: InMemoryStream) -> None:
    work = WorkSlice(plan=plan(SliceKind.CARRIED, portion=1), records=tuple(put(stream, FIRST, 10)))
    task = Task(tmp_path, stream)
    remains = task.run([work], acts(b"6"), arrow=True)
    assert remains is not None
    (result,) = recover([work], remains, task.settings, "it died")

    assert failures(result) == [(1, "ValueError: no", False), (6, "it died", True)]


def test_the_order_of_keys_holds_in_what_is_entered_again(tmp_path: Path, stream: InMemoryStream) -> None:
    records = [
        Record(data=str(at).encode(), sequence_number=str(at + 1), partition_key="k", shard_id=FIRST)
        for at in range(4)
    ]
    work = WorkSlice(plan=plan(SliceKind.CARRIED), records=tuple(records))
    task = Task(tmp_path, stream, order=Order.KEY)
    remains = task.run([work], acts(b"3"))
    assert remains is not None
    (result,) = recover([work], remains, task.settings, "it died")

    assert not result.outcome.failures[0].held
    assert all(each.held for each in result.outcome.failures[1:])


def test_a_torn_last_entry_is_left_out(tmp_path: Path, stream: InMemoryStream) -> None:
    work = WorkSlice(plan=plan(SliceKind.CARRIED), records=tuple(put(stream, FIRST, 10)))
    task = Task(tmp_path, stream)
    task.run([work], acts(b"6"))
    with task.file.open("ab") as file:
        file.write((1_000).to_bytes(8, "little") + b"torn")
    remains = journal.read(task.file)

    assert remains is not None
    assert list(remains.failures[0]) == [1]


def test_a_task_that_nobody_waits_for_any_more_hands_nothing_over(
    tmp_path: Path, stream: InMemoryStream
) -> None:
    work = WorkSlice(plan=plan(SliceKind.CARRIED), records=tuple(put(stream, FIRST, 3)))
    task = Task(tmp_path, stream)
    seen: list[Record] = []

    def deliver(plan: SlicePlan, rules: DeliverySettings) -> SliceDelivery:
        return HandlerDelivery(plan, RecordHandler(seen.append, lambda record: record), rules)

    notes = Journal(task.file, 1)
    journal.ask_to_stop(task.file)
    (result,) = run_slices([work], task.settings, deliver, notes)
    notes.close()

    assert (seen, result.outcome.count) == ([], 0)


# A job that failed on this machine


def job(task: int) -> HandlerKilledWorker:
    return HandlerKilledWorker(f"the Spark job died: Task {task} in stage 3.0 failed 1 times")


def test_only_the_task_that_failed_the_job_is_blamed(tmp_path: Path, stream: InMemoryStream) -> None:
    records = tuple(put(stream, FIRST, 3))
    packs = [[WorkSlice(plan=plan(SliceKind.CARRIED, name), records=records)] for name in (FIRST, SECOND)]
    tasks = [Task(tmp_path / name, stream) for name in (FIRST, SECOND)]
    for task, pack in zip(tasks, packs, strict=True):
        task.file.parent.mkdir()
        task.run(pack, acts(b"2"))
    results = recover_job(packs, lambda at: tasks[at].file, tasks[0].settings, job(1))

    assert results is not None
    first, second = results
    assert (first.outcome.count, second.outcome.count) == (2, 3)
    assert not any(each.fate is Fate.KILLED_WORKER for each in first.outcome.failures)
    assert second.outcome.failures[-1].fate is Fate.KILLED_WORKER


def test_a_job_that_failed_for_no_task_is_planned_again(tmp_path: Path, stream: InMemoryStream) -> None:
    death = HandlerKilledWorker("the Spark job died: the gateway is gone")
    packs = [[WorkSlice(plan=plan(SliceKind.READ))]]

    assert recover_job(packs, lambda _: tmp_path / "0.0", Task(tmp_path, stream).settings, death) is None


CANCELLED = HandlerKilledWorker("the Spark job died: Job 3 cancelled part of cancelled job tag orders-3")


@pytest.mark.parametrize(("max_seconds", "blamed"), [(0.0, 1), (3_600.0, 0)])
def test_of_a_job_that_was_cancelled_the_record_is_blamed_that_took_longer_than_a_task_may(
    tmp_path: Path, stream: InMemoryStream, max_seconds: float, blamed: int
) -> None:
    pack = [WorkSlice(plan=plan(SliceKind.CARRIED), records=tuple(put(stream, FIRST, 3)))]
    task = Task(tmp_path, stream)
    task.run(pack, acts(b"2"))
    settings = task_settings(StreamClient(stream), max_seconds=max_seconds)
    results = recover_job([pack], lambda _: task.file, settings, CANCELLED)

    assert results is not None
    assert sum(each.fate is Fate.KILLED_WORKER for each in results[0].outcome.failures) == blamed


def test_where_reading_takes_longer_than_the_time_out_the_driver_is_to_read(
    tmp_path: Path, stream: InMemoryStream
) -> None:
    """Nothing was under way: planned again as it was, the slice would meet the same end for ever."""
    pack = [WorkSlice(plan=plan(SliceKind.READ))]
    task = Task(tmp_path, stream)
    Journal(task.file, 1).close()
    results = recover_job([pack], lambda _: task.file, task.settings, CANCELLED)

    assert results is not None
    assert results[0].lost


def test_a_time_out_that_was_spent_on_starting_the_worker_blames_no_record(
    tmp_path: Path, stream: InMemoryStream
) -> None:
    pack = [WorkSlice(plan=plan(SliceKind.CARRIED), records=tuple(put(stream, FIRST, 1)))]
    task = Task(tmp_path, stream)
    results = recover_job([pack], lambda _: task.file, task.settings, CANCELLED)

    assert results is not None
    assert (results[0].outcome.count, results[0].outcome.failures, results[0].lost) == (0, (), False)
