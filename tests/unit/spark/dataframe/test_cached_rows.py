"""Rows that are kept for a DataFrame: fetched as columns, and found again when they fail."""

import pickle
import random
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from pyspark import Accumulator, SparkConf, SparkContext

from kinesis_spout.kinesis.aggregated_record import UserRecord
from kinesis_spout.kinesis.pace import ReadPace
from kinesis_spout.model.columns import HANDLED_SCHEMA
from kinesis_spout.model.errors import HandlerKilledWorker, InvalidConfig
from kinesis_spout.model.handler import Failure
from kinesis_spout.model.record import Record
from kinesis_spout.spark.dataframe.cached_rows import (
    CachedSlice,
    FetchBlocks,
    FindRows,
    FoundRow,
    RowCache,
    RowId,
    Wanted,
)
from kinesis_spout.spark.dataframe.dataframe_runner import Collector, with_failures
from kinesis_spout.spark.tasks.delivery import DeliverySettings, HandlerDelivery
from kinesis_spout.spark.tasks.handlers import RecordHandler
from kinesis_spout.spark.tasks.jobs import HandlerBroken, SparkGone
from kinesis_spout.spark.tasks.task import TaskSettings, run_slices
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice
from kinesis_spout.testing import InMemoryStream, ManualClock
from shard_state import SHARD_START, Position, Redelivery, SequenceNumber, SliceKind, SlicePlan
from tests.unit.spark.driver.world import FIRST, StreamClient, task_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kinesis_spout.spark.dataframe.cached_rows import CachedRows

TAG = "billing-7"


def plan(kind: SliceKind = SliceKind.READ, **changes: Any) -> SlicePlan:
    fields: dict[str, Any] = {
        "shard_id": FIRST,
        "limit": 100_000,
        "max_failures": 20_000,
        "position": Position.trim_horizon(),
        **changes,
    }
    return SlicePlan(epoch=1, kind=kind, **fields)


class Outcomes:
    """Stands for the accumulator of a task."""

    def __init__(self) -> None:
        self.pickled: list[bytes] = []

    def add(self, outcomes: dict[str, list[bytes]]) -> None:
        self.pickled += outcomes[TAG]


class Kept:
    """The blocks of one partition, as its task gave them."""

    def __init__(self, settings: TaskSettings, *pack: WorkSlice) -> None:
        outcomes = Outcomes()
        fetch = FetchBlocks(settings, cast("Accumulator[dict[str, list[bytes]]]", outcomes), TAG)
        self.blocks = [block.to_pybytes() for block in fetch(0, [pack])]
        self.slices: list[CachedSlice] = [pickle.loads(each) for each in outcomes.pickled]

    @property
    def results(self) -> list[WorkResult]:
        return [each.result for each in self.slices]

    @property
    def data(self) -> list[bytes]:
        batches = [pa.ipc.read_record_batch(pa.py_buffer(block), HANDLED_SCHEMA) for block in self.blocks]
        return [data for batch in batches for data in batch.column("data").to_pylist()]

    def find(self, places: Iterable[RowId]) -> list[FoundRow]:
        wanted: Wanted = {}
        for shard_id, sequence_number, sub_sequence_number in places:
            wanted.setdefault(shard_id, set()).add((sequence_number, sub_sequence_number))
        return list(FindRows(dict(enumerate(self.slices)), wanted)(0, self.blocks))


class World:
    def __init__(self) -> None:
        self.stream = InMemoryStream("orders", shards=1, clock=ManualClock())
        self.client = StreamClient(self.stream)

    def put(self, count: int) -> list[Record]:
        return [self.stream.put(str(number).encode(), "key") for number in range(count)]

    def put_aggregated(self, source: random.Random) -> list[Record]:
        """Put aggregated records and ordinary ones; each user record has data of its own."""
        records: list[Record] = []
        while len(records) < 60:
            inside = [
                UserRecord("key", str(len(records) + at).encode()) for at in range(source.randint(1, 9))
            ]
            records += self.stream.put_aggregated(inside)
            records.append(self.stream.put(str(len(records)).encode(), "key"))
        return records

    def settings(self, **changes: Any) -> TaskSettings:
        return task_settings(self.client, **changes)

    def keep(self, *pack: WorkSlice, **changes: Any) -> Kept:
        return Kept(self.settings(**changes), *pack)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    # The read limits of a shard are no business of these tests.
    monkeypatch.setattr(ReadPace, "seconds_for", lambda *_: 0.0)
    return World()


def test_the_rows_of_a_slice_are_kept_in_order_and_acked(world: World) -> None:
    records = world.put(5)
    kept = world.keep(WorkSlice(plan=plan()), records_per_fetch=2)

    assert kept.data == [record.data for record in records]
    (result,) = kept.results
    assert (result.outcome.first, result.outcome.last) == (records[0].sequence, records[-1].sequence)
    assert (result.outcome.count, result.delivered, result.outcome.failures) == (5, 5, ())
    assert result.outcome.at_tip


def test_no_more_is_fetched_than_could_fail_so_the_next_slice_needs_no_new_iterator(world: World) -> None:
    records = world.put(9)
    first = world.keep(WorkSlice(plan=plan(max_failures=5)), records_per_fetch=3)
    asked = len(world.client.iterator_requests)
    cursor = first.results[0].cursor
    position = Position.after(records[4].sequence)
    second = world.keep(WorkSlice(plan=plan(position=position), cursor=cursor), records_per_fetch=3)

    assert first.data == [record.data for record in records[:5]]
    assert second.data == [record.data for record in records[5:]]
    assert len(world.client.iterator_requests) == asked


def test_rows_that_were_carried_are_kept_as_those_that_were_read(world: World) -> None:
    records = world.put(3)
    kept = world.keep(WorkSlice(plan=plan(SliceKind.CARRIED, limit=3), records=tuple(records)))

    assert kept.data == [b"0", b"1", b"2"]
    assert (kept.results[0].outcome.last, kept.results[0].delivered) == (records[-1].sequence, 3)


def test_what_a_stored_hole_covers_is_no_row(world: World) -> None:
    records = world.put(6)
    holes = ((records[0].sequence, records[2].sequence), (records[3].sequence, records[4].sequence))
    kept = world.keep(WorkSlice(plan=plan(holes=holes, anchor=records[0].sequence)))

    assert kept.data == [b"0", b"3", b"5"]
    assert (kept.results[0].outcome.count, kept.results[0].delivered) == (6, 3)


def test_a_row_that_is_not_of_the_batch_is_not_found(world: World) -> None:
    (record,) = world.put(1)
    kept = world.keep(WorkSlice(plan=plan()))

    others = [
        (FIRST, "1", None),
        ("another", record.sequence_number, None),
        (FIRST, record.sequence_number, 0),
    ]
    assert kept.find(others) == []


def test_a_found_row_is_the_record_that_was_read(world: World) -> None:
    records = world.put(3)
    kept = world.keep(WorkSlice(plan=plan()))
    (found,) = kept.find([(FIRST, records[1].sequence_number, None)])

    assert found.record == records[1]


def test_retries_and_fresh_rows_of_one_shard_are_told_apart(world: World) -> None:
    records = world.put(4)
    retries = (
        Redelivery(sequence=records[0].sequence, attempt=2),
        Redelivery(sequence=records[2].sequence, attempt=4),
    )
    retry = WorkSlice(
        plan=plan(SliceKind.RETRY, max_failures=2, limit=2, retries=retries), records=(records[0], records[2])
    )
    position = Position.after(records[2].sequence)
    kept = world.keep(WorkSlice(plan=plan(position=position)), retry)
    found = kept.find((FIRST, record.sequence_number, None) for record in (records[2], records[3]))

    assert [
        (kept.results[row.slice].plan.kind, row.record.attempt, row.index, row.previous) for row in found
    ] == [(SliceKind.RETRY, 4, 1, records[0].sequence), (SliceKind.READ, 1, 0, None)]


def outcome_of_handler(
    settings: TaskSettings, work: WorkSlice, handle: Callable[[Record], None]
) -> WorkResult:
    """What the record door makes of the same slice."""

    def deliver(plan: SlicePlan, rules: DeliverySettings) -> HandlerDelivery:
        return HandlerDelivery(plan, RecordHandler(handle, lambda record: record), rules)

    (result,) = run_slices([work], settings, deliver)
    return result


@pytest.mark.parametrize("seed", range(30))
def test_failed_rows_end_as_the_failed_records_of_the_record_door_do(world: World, seed: int) -> None:
    source = random.Random(seed)
    records = world.put(source.randint(1, 60)) if seed % 5 else world.put_aggregated(source)
    holes: Sequence[tuple[SequenceNumber, SequenceNumber]] = ()
    if seed % 3:
        cuts = sorted(source.sample(range(len(records)), min(len(records), 6) // 2 * 2))
        holes = [
            (records[cuts[at]].sequence, records[cuts[at + 1]].sequence) for at in range(0, len(cuts), 2)
        ]
    attempts = [(record.sequence, source.randint(1, 3)) for record in source.sample(records, 1)]
    anchor = records[0].sequence if seed % 4 else records[-1].sequence
    work = WorkSlice(
        plan=plan(holes=tuple(holes), attempts=tuple(attempts) if seed % 2 else (), anchor=anchor)
    )
    settings = world.settings(records_per_fetch=source.randint(1, 20), max_seconds=100.0)
    kept = Kept(settings, work)
    bad = set(source.sample(kept.data, source.randint(0, len(kept.data))))
    failures = {
        (FIRST, record.sequence_number, record.sub_sequence_number): Failure(error_text="ValueError: bad")
        for record in records
        if record.data in bad
    }

    def handle(record: Record) -> None:
        if record.data in bad:
            raise ValueError("bad")

    (ours,) = with_failures(cast("CachedRows", kept), failures)
    theirs = outcome_of_handler(settings, work, handle)
    assert ours.outcome == theirs.outcome
    assert ours.delivered == theirs.delivered
    assert [(each.record, each.error) for each in ours.unfinished] == [
        (each.record, each.error) for each in theirs.unfinished
    ]


class Context:
    """Stands for a SparkContext whose jobs give no outcomes."""

    def __init__(self, **settings: str) -> None:
        self._settings = {name.replace("__", "."): value for name, value in settings.items()}

    def getConf(self) -> SparkConf:  # noqa: N802 - Spark's name
        conf = SparkConf(loadDefaults=False)
        for name, value in self._settings.items():
            conf.set(name, value)
        return conf

    def accumulator(self, value: Any, param: Any) -> "Accumulator[Any]":
        return Accumulator(-17, value, param)


def cache(world: World, context: Context) -> RowCache:
    return RowCache(cast("SparkSession", None), cast("SparkContext", context), world.settings())


def test_a_session_that_speculates_is_refused_because_two_attempts_read_different_rows(world: World) -> None:
    with pytest.raises(InvalidConfig, match=r"expected spark\.speculation=false with foreach_batch"):
        cache(world, Context(spark__speculation="true"))


@pytest.mark.parametrize(("outcomes", "error"), [(0, SparkGone), (1, SparkGone), (3, HandlerKilledWorker)])
def test_outcomes_that_are_missing_blame_no_record_and_those_given_twice_mean_that_blocks_were_lost(
    world: World, outcomes: int, error: type[Exception]
) -> None:
    made = cache(world, Context(spark__speculation="false"))
    kept = world.keep(WorkSlice(plan=plan()))
    made._outcomes.add({TAG: [pickle.dumps(kept.slices[0])] * outcomes})

    with pytest.raises(error, match=f"the outcomes of 2 slices, got {outcomes}"):
        made._fetched(TAG, 2)


def test_of_a_probe_one_row_is_kept_however_many_finished_ones_come_before_it(world: World) -> None:
    records = world.put(7)
    probe = plan(holes=((SHARD_START, records[4].sequence),), room=1, deliveries=1)
    kept = world.keep(WorkSlice(plan=probe), records_per_fetch=2)

    assert kept.data == [records[5].data]
    (result,) = kept.results
    assert (result.outcome.count, result.delivered) == (6, 1)


def test_user_records_are_rows_of_their_own_with_their_place_and_hash_key(world: World) -> None:
    plain = world.stream.put(b"plain", "key")
    inside = [UserRecord("one", b"1", "7"), UserRecord("two", b"2")]
    user_records = world.stream.put_aggregated(inside)
    kept = world.keep(WorkSlice(plan=plan()))

    found = kept.find((FIRST, record.sequence_number, record.sub_sequence_number) for record in user_records)

    assert kept.data == [b"plain", b"1", b"2"]
    assert [each.record for each in found] == user_records
    assert [(each.index, each.previous) for each in found] == [
        (1, plain.sequence),
        (2, user_records[0].sequence),
    ]


def test_a_slice_that_is_full_in_an_aggregate_goes_on_in_it(world: World) -> None:
    world.stream.put(b"plain", "key")
    inside = [UserRecord("key", str(number).encode()) for number in range(9)]
    user_records = world.stream.put_aggregated(inside)
    first = world.keep(WorkSlice(plan=plan(max_failures=5)))
    last = first.results[0].outcome.last
    assert last == user_records[3].sequence

    position = Position.after(last)
    second = world.keep(WorkSlice(plan=plan(position=position), cursor=first.results[0].cursor))

    assert first.data == [b"plain", b"0", b"1", b"2", b"3"]
    assert second.data == [b"4", b"5", b"6", b"7", b"8"]
    assert second.results[0].outcome.first == user_records[4].sequence


def test_rows_of_an_aggregate_cannot_be_failed_by_its_sequence_number_alone(world: World) -> None:
    user_records = world.stream.put_aggregated([UserRecord("key", b"1"), UserRecord("key", b"2")])
    kept = world.keep(WorkSlice(plan=plan()))
    collector = Collector()
    collector.fail([{"shardId": FIRST, "sequenceNumber": user_records[0].sequence_number}], "bad")

    with pytest.raises(HandlerBroken, match="subSequenceNumber: the last one tells"):
        with_failures(cast("CachedRows", kept), collector.failures)


@pytest.mark.parametrize("sub", [1, 1.0])
def test_rows_are_named_by_their_index_in_the_aggregate_also_as_pandas_has_it(
    world: World, sub: float
) -> None:
    plain = world.stream.put(b"plain", "key")
    user_records = world.stream.put_aggregated([UserRecord("key", b"1"), UserRecord("key", b"2")])
    kept = world.keep(WorkSlice(plan=plan()))
    collector = Collector()
    rows = [(plain.sequence_number, float("nan")), (user_records[1].sequence_number, sub)]
    collector.fail(
        [
            {"shardId": FIRST, "sequenceNumber": number, "subSequenceNumber": index, "other": 7}
            for number, index in rows
        ],
        "bad",
    )

    (result,) = with_failures(cast("CachedRows", kept), collector.failures)

    assert [each.sequence for each in result.outcome.failures] == [plain.sequence, user_records[1].sequence]
    assert [each.record.data for each in result.unfinished] == [b"plain", b"2"]
