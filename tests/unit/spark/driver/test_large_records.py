"""Records of 10 MiB without a key, through micro-batches: read, retried, dead-lettered."""

import pytest

from kinesis_spout.kinesis.pace import ReadPace
from kinesis_spout.model.record import Record
from tests.support.waiting import wait_until
from tests.unit.spark.driver.world import EngineWorld

LARGEST = [bytes([number]) * (10 * 1024 * 1024) for number in range(3)]


def test_with_buffers_smaller_than_one_each_is_delivered_and_the_failed_one_dead_lettered(
    world: EngineWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReadPace, "seconds_for", lambda *_: 0.2)  # waits in real time here
    for data in LARGEST:
        world.stream.put(data)
    delivered: list[int] = []

    def handle(record: Record) -> None:
        assert record.partition_key is None
        number = LARGEST.index(record.data)
        delivered.append(number)
        if number == 1:
            raise ValueError("too large for us")

    last = world.stream.records("shardId-000000000000")[-1]
    running = world.start(
        handle,
        engine={"max_buffered_bytes": 10 * 1024 * 1024},
        task={"bytes_per_slice": 1},
        order="key",
        retry_limit=2,
        max_buffered_bytes=10 * 1024 * 1024,
    )
    world.until_stored(last)
    wait_until(lambda: running.query.counters.dead_lettered == 1, "the dead letter")

    assert sorted(delivered) == [0, 1, 1, 1, 2]
    (letter,) = world.dead_letters.read()
    assert (letter.data, letter.partition_key, letter.attempts) == (LARGEST[1], None, 3)
