"""A handler whose work is not done when it returns acks nothing, at whichever door."""

import asyncio
import functools
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from io import StringIO
from itertools import chain
from multiprocessing import Process
from multiprocessing.pool import ThreadPool
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import MagicMock

import pyarrow as pa
import pytest

from kinesis_spout import KinesisSpout
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.model.record import Record
from kinesis_spout.model.unfinished_work import (
    is_coroutine_function,
    refuse_generator_function,
    refuse_unfinished,
    refuse_unfinished_function,
)
from kinesis_spout.producer.tickets import Ticket
from kinesis_spout.spark import each_record
from kinesis_spout.spark.tasks.handlers import ArrowHandler
from kinesis_spout.storm import (
    BasicBolt,
    BatchBolt,
    Bolt,
    Seconds,
    Spout,
    TopologyBuilder,
    Tuple,
    Window,
    WindowedBolt,
)
from kinesis_spout.testing import run


def generator(record: object, _more: object = None) -> Iterator[object]:
    yield record


async def async_generator(record: object, _more: object = None) -> AsyncIterator[object]:
    yield record


async def coroutine(_record: object, _more: object = None) -> None: ...


class Called:
    def __call__(self, record: object, _more: object = None) -> Iterator[object]:
        yield record

    def method(self, record: object) -> Iterator[object]:
        yield record

    async def asynchronous(self, _: object) -> None: ...


def decorated(function: Callable[[object], object]) -> Callable[[object], object]:
    @functools.wraps(function)
    def call(record: object) -> object:
        return function(record)

    return call


def drained(function: Callable[[object], Iterator[object]]) -> Callable[[object], object]:
    @functools.wraps(function)
    def call(record: object) -> None:
        for _ in function(record):
            pass

    return call


GENERATORS: list[Callable[..., object]] = [
    generator,
    async_generator,
    functools.partial(generator, 1),
    Called(),
    Called().method,
    functools.partial(Called().method, 1),
]


@pytest.mark.parametrize("function", GENERATORS)
def test_a_generator_function_is_known_in_all_its_forms(function: Callable[..., object]) -> None:
    with pytest.raises(InvalidConfig, match=r"handler: expected a function that has done its work.*yield"):
        refuse_generator_function("handler", function)


def test_a_coroutine_function_is_known_in_all_its_forms() -> None:
    class Handler:
        async def __call__(self, _: int) -> None: ...

    forms = (coroutine, functools.partial(coroutine, 1), Handler(), Handler().__call__, Called().asynchronous)
    for function in forms:
        assert is_coroutine_function(function)
        refuse_generator_function("handler", function)
        with pytest.raises(InvalidConfig, match="an async def"):
            refuse_unfinished_function("handler", function)


@pytest.mark.parametrize(
    "function", [print, functools.partial(print, 1), decorated(generator), drained(generator)]
)
def test_what_may_do_its_work_is_let_through(function: Callable[..., object]) -> None:
    refuse_unfinished_function("handler", function)


def a_future(_: object) -> "asyncio.Future[None]":
    loop = asyncio.new_event_loop()
    loop.close()
    return asyncio.Future(loop=loop)


def a_result_of_a_pool(_: object) -> object:
    with ThreadPool(1) as pool:
        return pool.apply_async(int)


def an_iterator_of_a_pool(_: object) -> object:
    with ThreadPool(1) as pool:
        return pool.imap(int, ["1"])


def mapped(_: object) -> object:
    with ThreadPoolExecutor(1) as pool:
        return pool.map(int, ["1"])


@pytest.mark.parametrize(
    "function",
    [
        generator,
        async_generator,
        coroutine,
        lambda _: Future(),
        a_future,
        a_result_of_a_pool,
        an_iterator_of_a_pool,
        mapped,
        lambda _: map(print, [1]),
        lambda _: filter(None, [1]),
        lambda _: zip([1], strict=True),
        lambda _: chain([1]),
        lambda _: iter([1]),
        lambda _: (each for each in [1]),
        lambda _: Thread(),
        lambda _: Process(),
    ],
)
def test_what_is_not_done_is_refused_when_it_is_returned_and_closed(
    function: Callable[[object], object],
) -> None:
    returned = function(1)
    with pytest.raises(TypeError, match="expected a handler that has done its work when it returns, got a"):
        refuse_unfinished(returned)
    if isinstance(returned, (Future, asyncio.Future)):
        assert returned.cancelled()


@pytest.mark.parametrize("returned", [1, "text", [generator], {}, print, MagicMock(), range(1), StringIO()])
def test_what_else_a_handler_returns_does_not_matter(returned: object) -> None:
    refuse_unfinished(returned)


def test_a_cursor_has_done_its_work_when_it_is_returned_and_stays_open() -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        cursor = database.execute("SELECT 1")
        refuse_unfinished(cursor)
        assert cursor.fetchone() == (1,)


class TestDoors:
    @pytest.mark.parametrize("function", GENERATORS)
    @pytest.mark.parametrize("door", ["foreach_record", "foreach_arrow", "foreach_batch"])
    def test_of_the_spout(self, door: str, function: Callable[..., object]) -> None:
        spout = KinesisSpout(stream="orders", app="billing")
        with pytest.raises(InvalidConfig, match="got a generator function"):
            getattr(spout, door)(None, function)

    @pytest.mark.parametrize("door", ["foreach_arrow", "foreach_batch"])
    def test_where_nothing_is_awaited_an_async_def_is_refused(self, door: str) -> None:
        spout = KinesisSpout(stream="orders", app="billing")
        with pytest.raises(InvalidConfig, match="got an async def, coroutine"):
            getattr(spout, door)(None, coroutine)

    def test_each_record(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidConfig, match="got a generator function, generator"):
            each_record(generator, dead_letters=str(tmp_path), app="billing")

    def test_a_run_in_a_test(self) -> None:
        for function in (generator, coroutine):
            with pytest.raises(InvalidConfig, match="handler: expected a function that has done its work"):
                run(function, ["a"])
        (record,) = run(decorated(generator), ["a"], retry_limit=0)
        assert record.dead_lettered
        assert "got a generator, of which nothing has run" in str(record.error)

    def test_arrow_batches(self) -> None:
        handler = ArrowHandler(lambda batch, _: generator(batch))
        notes = MagicMock()
        failed = handler._handle(pa.record_batch({"n": [1]}), 0, notes)
        assert "got a generator" in failed[0][1].error_text

    def test_the_callbacks_of_a_producer(self, caplog: pytest.LogCaptureFixture) -> None:
        ticket = Ticket(data=b"", partition_key="", explicit_hash_key=None, size_bytes=0)
        ticket.add_done_callback(generator)
        with caplog.at_level(logging.ERROR):
            ticket.tell()
        assert "got a generator" in caplog.text

    def test_bolts_are_refused_when_they_are_set(self) -> None:
        class OfExecute(Bolt):
            def execute(self, tup: Tuple) -> Iterator[Tuple]:  # type: ignore[override]
                yield tup

        class OfProcess(BasicBolt):
            async def process(self, tup: Tuple) -> None: ...  # type: ignore[override]

        class OfBatch(BatchBolt):
            def process_batch(self, batch: Any) -> Iterator[Any]:  # type: ignore[override]
                yield batch

        for bolt, method in (
            (OfExecute(), "execute"),
            (OfProcess(), "process"),
            (OfBatch(), "process_batch"),
        ):
            with pytest.raises(InvalidConfig, match=f"bolt 'count': {method}: expected a function"):
                TopologyBuilder().set_bolt("count", bolt)

    def test_a_spout_of_ones_own_is_refused_when_it_is_set(self) -> None:
        class OfWords(Spout):
            def declare_output_fields(self) -> list[str]:
                return ["word"]

            def next_tuple(self) -> Iterator[None]:  # type: ignore[override]
                self.collector.emit(["a"])
                yield

        with pytest.raises(InvalidConfig, match="spout 'words': next_tuple: expected a function"):
            TopologyBuilder().set_spout("words", OfWords())

    @pytest.mark.parametrize("method", ["execute", "flush"])
    def test_a_tuple_whose_bolt_returns_what_is_not_done_fails(self, method: str) -> None:
        class Lazy(Bolt):
            def execute(self, tup: Tuple) -> object:  # type: ignore[override]
                self.given = tup
                return map(self.collector.ack, [tup]) if method == "execute" else None

            def flush(self) -> object:  # type: ignore[override]
                return map(self.collector.ack, [self.given])

        builder = TopologyBuilder()
        builder.set_spout("records", KinesisSpout(stream="orders", app="billing"), fields=["word"])
        builder.set_bolt("lazy", Lazy()).shuffle_grouping("records")
        (reason,) = builder.build().run_local([["a"]]).reasons
        assert "got a map, which works as its items are taken" in reason

    @pytest.mark.parametrize("method", ["execute_window", "late"])
    def test_a_tuple_whose_window_returns_what_is_not_done_fails(self, method: str) -> None:
        class Lazy(WindowedBolt):
            length = Seconds(1)

            def time_of(self, tup: Tuple) -> float:
                return float(tup[0])

            def execute_window(self, key: Any, window: Window) -> object:  # type: ignore[override]
                return map(self.emit, [key, window]) if method == "execute_window" else None

            def late(self, tup: Tuple) -> object:  # type: ignore[override]
                return map(print, [tup])

        builder = TopologyBuilder()
        builder.set_spout("records", KinesisSpout(stream="orders", app="billing"), fields=["time", "key"])
        builder.set_bolt("lazy", Lazy()).fields_grouping("records", ["key"])
        topology = builder.build("lazily", state="/nowhere")
        (reason,) = topology.run_local([["1", "a"], ["3", "a"], ["1", "a"]][: 2 + (method == "late")]).reasons
        assert "got a map, which works as its items are taken" in reason

    def test_a_bolt_whose_tick_returns_what_is_not_done_reports_an_error(self) -> None:
        class Lazy(Bolt):
            tick_seconds = 0

            def execute(self, tup: Tuple) -> object:  # type: ignore[override]
                return map(print, ["on a tick"]) if tup.is_tick else self.collector.ack(tup)  # type: ignore[func-returns-value]

        builder = TopologyBuilder()
        builder.set_spout("records", KinesisSpout(stream="orders", app="billing"), fields=["word"])
        builder.set_bolt("lazy", Lazy()).shuffle_grouping("records")
        counts = builder.build().run_local([["a"]]).counts["lazy"]
        assert "got a map, which works as its items are taken" in counts.last_error


def test_a_record_whose_handler_returns_what_is_not_done_fails_at_once() -> None:
    def handler(record: Record) -> object:
        return coroutine(record)

    (record,) = run(handler, ["a"], retry_limit=0)
    assert "got a coroutine, which nobody awaits" in str(record.error)
