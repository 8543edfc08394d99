"""What a query on Spark says of its life in the log; all else is as for the spout in plain Python."""

import logging
import threading
from collections.abc import Sequence

import pytest

from kinesis_spout.consumer import consumer_log
from kinesis_spout.model.record import DeadLetter
from kinesis_spout.testing import InMemoryDeadLetterSink
from tests.support.waiting import wait_until
from tests.unit.spark.driver.world import FIRST, Diary, EngineWorld

MIB = 1024 * 1024


class GatedSink(InMemoryDeadLetterSink):
    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def write(self, letters: Sequence[DeadLetter]) -> None:
        assert self.gate.wait(60), "no test lets the write pass"
        super().write(letters)


def told(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [
        record.getMessage()
        for record in list(caplog.records)
        if record.name == consumer_log.__name__ and record.getMessage().startswith(text)
    ]


def test_a_query_tells_its_life_from_start_to_stop(
    world: EngineWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    running = world.start(Diary())
    world.put("one", "two")
    running.query.processAllAvailable()
    running.stop()
    assert [line.partition(" ")[0].rstrip(":") for line in told(caplog, "")] == [
        "started",
        "position",
        "assigned",
        "acquired",
        "stopped",
    ]
    assert "delivered 2, acked 2" in told(caplog, "stopped")[0]


def test_what_was_done_can_be_read_after_the_stop(world: EngineWorld) -> None:
    running = world.start(Diary())
    world.until_stored(world.put("one", "two")[-1])
    running.stop()
    assert (running.query.counters.delivered, running.query.counters.acked) == (2, 2)
    assert [shard.shard_id for shard in running.query.shards()] == [FIRST]
    assert (running.query.failures, running.query.uncommitted, running.query.last_error) == ({}, 0, None)


def test_dead_letters_that_wait_for_their_sink_pause_the_reading_once(
    world: EngineWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world.dead_letters = sink = GatedSink()
    payloads = [f"{number}{'x' * MIB}" for number in range(12)]
    world.put(*payloads)
    refused = Diary(**{payload: [ValueError("no")] for payload in payloads})
    world.start(refused, engine={"max_buffered_bytes": 40 * MIB}, retry_limit=0)
    wait_until(lambda: bool(told(caplog, "paused")), "the pause is said")
    sink.gate.set()
    wait_until(lambda: bool(told(caplog, "resumed")), "the resumption is said")
    assert len(told(caplog, "paused")) == len(told(caplog, "resumed")) == 1
