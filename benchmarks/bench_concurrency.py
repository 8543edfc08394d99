"""Records a second of one shard with a handler that waits 20 ms, and what concurrency costs where nobody waits.

*One shard* reads a backlog of a single shard with ``foreach_record`` on Spark: with 1, 8 and 64 records at a time,
on threads and in an event loop, and with the order of keys. The goal is 0.8 x N / 0.02 records a second, told as
the time a record takes of the shard's: 25 ms / N.

*CPU* hands records to a handler that does nothing, in this process, without Spark and Kinesis. It is all overhead.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from canned_kinesis import CannedKinesis
from figures import Figure, Step, cpu_seconds
from local_spark import local_session, spout_config
from pyspark.sql import SparkSession

from kinesis_spout import KinesisSpout, Record
from kinesis_spout.spark.driver.query import SpoutQuery
from kinesis_spout.spark.tasks.delivery import DeliverySettings
from kinesis_spout.spark.tasks.handlers import delivery_to, record_handler
from kinesis_spout.spark.tasks.journal import Journal, SliceNotes
from shard_state import Order, Position, SliceKind, SlicePlan

WAIT_SECONDS: Final = 0.02
GOAL: Final = 0.8
GOAL_MICROS: Final = 15.0
"""CPU of a record with threads."""
THREADS, LOOP = "threads", "event loop"
_PAGE: Final = 10_000
_DEADLINE_SECONDS: Final = 120.0
_LOOK_EVERY_SECONDS: Final = 0.005


def waiting(how: str) -> Callable[[Record], Any]:
    """Make a handler that waits; made in a function, it travels whole, and not by this file's name."""

    def wait(_: Record) -> None:
        time.sleep(WAIT_SECONDS)

    async def wait_in_loop(_: Record) -> None:
        await asyncio.sleep(WAIT_SECONDS)

    return wait if how == THREADS else wait_in_loop


def do_nothing(_: Record) -> None: ...


async def do_nothing_in_loop(_: Record) -> None: ...


def figures(*, quick: bool) -> Iterator[Figure | Step]:
    yield from _cpu(repeats=3 if quick else 9)
    with (
        CannedKinesis() as kinesis,
        tempfile.TemporaryDirectory() as directory,
        local_session() as spark,
    ):
        for how in (THREADS, LOOP):
            for concurrency in (1, 8, 64):
                for order in ("unordered", "key") if (concurrency, how) == (64, THREADS) else ("unordered",):
                    by_key = ", by key" if order == "key" else ""
                    what = f"one shard, wait of 20 ms, {how}, {concurrency} at a time{by_key}"
                    yield Step(what)
                    config = spout_config(
                        kinesis.settings,
                        f"backlog-1-{_PAGE}-100-60-{how.replace(' ', '-')}-{concurrency}-{order}",
                        Path(directory),
                        order=order,
                        concurrency=concurrency,
                    )
                    yield _rate(
                        spark, KinesisSpout(config=config), waiting(how), what, batches=1 if quick else 3
                    )


def _rate(
    spark: SparkSession, spout: KinesisSpout, handler: Callable[[Record], Any], what: str, batches: int
) -> Figure:
    """Measure from the end of the first micro-batch to the end of one of those that follow."""
    with spout.foreach_record(spark, handler) as query:
        first, began = _next(query, 0)
        last = first
        for _ in range(batches):
            last, ended = _next(query, last)
    rate = (last - first) / (ended - began)
    concurrency = spout.config.concurrency
    return Figure(
        what=what,
        value=1e3 / rate,
        unit="ms/record",
        at_most=WAIT_SECONDS * 1e3 / (GOAL * concurrency),
        note=f"{rate:,.0f} records/s, {rate * WAIT_SECONDS / concurrency:.2f} of what {concurrency} could do",
    )


def _next(query: SpoutQuery, acked: int) -> tuple[int, float]:
    """Wait for a micro-batch to end. Returns how many records are acked by now, and the time."""
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while query.counters.acked <= acked:
        assert query.isActive, str(query.exception())
        assert time.monotonic() < deadline, f"no micro-batch ended in {_DEADLINE_SECONDS} s"
        time.sleep(_LOOK_EVERY_SECONDS)
    return query.counters.acked, time.monotonic()


def _cpu(*, repeats: int) -> Iterator[Figure]:
    simple = _micros(do_nothing, 1, Order.UNORDERED, repeats)
    yield Figure(what="CPU, handler does nothing, 1 at a time", value=simple, unit="us CPU/record")
    for handler, how in ((do_nothing, THREADS), (do_nothing_in_loop, LOOP)):
        for concurrency in (8, 64):
            for order in (Order.UNORDERED, Order.KEY):
                yield Figure(
                    what=f"CPU, handler does nothing, {how}, {concurrency} at a time, {order}",
                    value=_micros(handler, concurrency, order, repeats),
                    unit="us CPU/record",
                    at_most=GOAL_MICROS if handler is do_nothing else None,
                )


def _micros(handler: Callable[[Record], Any], concurrency: int, order: Order, repeats: int) -> float:
    made = record_handler(handler, lambda record: record, concurrency=concurrency, timeout_seconds=None)
    plan = SlicePlan(
        shard_id="shard",
        epoch=1,
        kind=SliceKind.READ,
        limit=_PAGE,
        position=Position.trim_horizon(),
        max_failures=2 * _PAGE,
    )
    records = [
        Record(data=b"", sequence_number=str(number), partition_key=f"key-{number % 997}", shard_id="shard")
        for number in range(1, _PAGE + 1)
    ]
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder, "notes"), 1, has_marks=True)

        def page() -> None:
            rules = DeliverySettings(order=order, clock=time.monotonic, notes=SliceNotes(journal, 0))
            delivery = delivery_to(made, plan, rules)
            reached = delivery.deliver(records, time.monotonic() + _DEADLINE_SECONDS)
            assert (reached, delivery.delivered, delivery.failures) == (_PAGE, _PAGE, [])

        micros = cpu_seconds(page, repeats=repeats) / _PAGE * 1e6
        journal.close()
    return micros
