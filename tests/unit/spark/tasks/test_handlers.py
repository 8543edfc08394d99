"""How the user's code is called: by record and by Arrow batch, and what it may say."""

import asyncio
from typing import Any

import pyarrow as pa
import pytest

from kinesis_spout.model.handler import Reject, RetryLater
from kinesis_spout.model.record import Record
from kinesis_spout.spark.pickled_handler import PickledHandler
from kinesis_spout.spark.tasks.handlers import (
    ArrowCollector,
    ArrowHandler,
    RecordHandler,
)
from kinesis_spout.spark.tasks.journal import SliceNotes

NEVER = 1e9
NOTES = SliceNotes(None, 0)


def records(*payloads: str) -> list[Record]:
    return [
        Record(data=payload.encode(), sequence_number=str(at + 1), shard_id="shard", stream="orders")
        for at, payload in enumerate(payloads)
    ]


def test_the_scheme_prepares_each_record_and_its_errors_fail_it() -> None:
    seen: list[int] = []
    handler = RecordHandler(seen.append, lambda record: int(record.data))
    reached, failed = handler(records("1", "two", "3"), NEVER, NOTES)

    assert (seen, reached) == ([1, 3], 3)
    assert [(at, failure.error_text.partition(":")[0]) for at, failure in failed] == [(1, "ValueError")]


def test_verdicts_are_read() -> None:
    def handle(value: bytes) -> None:
        raise {b"a": Reject("bad"), b"b": RetryLater(7)}[value]

    _, failed = RecordHandler(handle, lambda record: record.data)(records("a", "b"), NEVER, NOTES)

    assert [(failure.rejected, failure.delay_seconds) for _, failure in failed] == [(True, None), (False, 7)]


def test_a_record_handler_stops_when_its_time_is_up_but_handles_one() -> None:
    seen: list[Record] = []

    assert RecordHandler(seen.append, lambda record: record)(records("a", "b"), 0.0, NOTES) == (1, [])
    assert len(seen) == 1


def test_an_arrow_handler_names_the_rows_that_failed() -> None:
    def handle(batch: pa.RecordBatch, collector: ArrowCollector) -> None:
        rows = [at for at, data in enumerate(batch.column("data").to_pylist()) if data == b"bad"]
        collector.fail(rows, "why")

    reached, failed = ArrowHandler(handle)(records("a", "bad", "c", "bad"), NEVER, NOTES)

    assert reached == 4
    assert [(at, failure.error_text) for at, failure in failed] == [(1, "why"), (3, "why")]


def test_a_raising_arrow_handler_is_halved_until_the_poison_stands_alone() -> None:
    sizes: list[int] = []

    def handle(batch: pa.RecordBatch, collector: ArrowCollector) -> None:
        sizes.append(batch.num_rows)
        data = batch.column("data").to_pylist()
        if b"poison" in data:
            raise ValueError("poisoned")
        collector.fail([at for at, each in enumerate(data) if each == b"bad"], Reject("no"))

    _, failed = ArrowHandler(handle)(records("a", "b", "bad", "poison", "e", "f", "g", "bad"), NEVER, NOTES)

    assert [(at, failure.error_text, failure.rejected) for at, failure in failed] == [
        (2, "no", True),
        (3, "ValueError: poisoned", False),
        (7, "no", True),
    ]
    assert sizes == [8, 4, 2, 2, 1, 1, 4]


@pytest.mark.parametrize("row", [-1, 2])
def test_a_row_that_the_batch_has_not_is_refused(row: int) -> None:
    with pytest.raises(IndexError, match="0 to 1"):
        ArrowCollector(2).fail(row, "why")


def test_a_handler_is_loaded_once_per_worker_and_keeps_its_state() -> None:
    calls: list[Any] = []

    class Stateful:
        def __init__(self) -> None:
            self.count = 0

        def __call__(self, _: Record) -> None:
            self.count += 1
            if self.count == 2:
                raise ValueError("the second call of one and the same object")

    packed = PickledHandler.of(RecordHandler(Stateful(), lambda record: record))
    calls += packed.load()(records("a"), NEVER, NOTES)[1]
    calls += packed.load()(records("b"), NEVER, NOTES)[1]

    assert [failure.error_text for _, failure in calls] == [
        "ValueError: the second call of one and the same object"
    ]
    assert packed.load() is packed.load()


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


ENDS = [asyncio.CancelledError(), KeyboardInterrupt(), GeneratorExit(), SystemExit(3), UnspeakableError()]


@pytest.mark.parametrize("raised", ENDS, ids=lambda error: type(error).__name__)
def test_whatever_a_record_handler_raises_fails_that_record_only(raised: BaseException) -> None:
    def handle(record: Record) -> None:
        if record.data == b"b":
            raise raised

    reached, failed = RecordHandler(handle, lambda record: record)(records("a", "b", "c"), NEVER, NOTES)

    assert reached == 3
    assert [(at, failure.error_text.startswith(type(raised).__name__)) for at, failure in failed] == [
        (1, True)
    ]


@pytest.mark.parametrize("raised", ENDS, ids=lambda error: type(error).__name__)
def test_whatever_an_arrow_handler_raises_fails_that_row_only(raised: BaseException) -> None:
    def handle(batch: pa.RecordBatch, _: ArrowCollector) -> None:
        if b"b" in batch.column("data").to_pylist():
            raise raised

    reached, failed = ArrowHandler(handle)(records("a", "b", "c"), NEVER, NOTES)

    assert (reached, [at for at, _ in failed]) == (3, [1])
