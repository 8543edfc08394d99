"""Streams of a pattern, records, restarts and failed batches in random order: each record in one batch."""

import random
from collections import Counter

import pytest

from kinesis_spout.structured.stream import read_ahead
from tests.support.kinesis.in_memory_account import InMemoryAccountClient
from tests.support.waiting import wait_until
from tests.unit.structured.spark_in_memory import SparkInMemory, options_over
from tests.unit.structured.stream.test_stream_patterns import streams_of

NAMES = [f"orders-{number}" for number in range(5)]


class Comings:
    """A query, and what happens to its streams. ``alive`` has what was put onto those that are there."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.account = InMemoryAccountClient()
        self.alive: dict[str, list[bytes]] = {}
        self.deleted: set[str] = set()
        self.records = 0
        self.create(NAMES[0])
        options = options_over(
            self.account,
            "account",
            streamName="orders-*",
            initialPosition=chance.choice(["latest", "earliest"]),
            maxRecordsPerTrigger=chance.choice(["1", "3", "1000"]),
            failOnDataLoss="false",
        )
        self.spark = SparkInMemory(options)
        self.spark.trigger()  # which logs what LATEST is

    def act(self) -> None:
        acts = (
            self.create,
            self.put,
            self.put,
            self.delete,
            self.restart,
            self.fail,
            self.trigger,
            self.trigger,
        )
        self.chance.choice(acts)(self.chance.choice(NAMES))

    def create(self, name: str) -> None:
        if name in self.alive:
            return
        if name in self.deleted:  # in memory, numbers begin anew: it must not be taken for the old one

            def has_left() -> bool:
                self.spark.trigger()
                return len(self.spark.offsets) == self.spark.committed and name not in streams_of(self.spark)

            wait_until(has_left, f"{name} to leave the log")
        self.account.create(name)
        self.alive[name] = []

    def put(self, name: str) -> None:
        if name in self.alive:
            for _ in range(self.chance.randint(1, 4)):
                self.records += 1
                self.alive[name].append(f"{name} {self.records}".encode())
                self.account.streams[name]._stream.put(self.alive[name][-1], "key")

    def delete(self, name: str) -> None:
        if name in self.alive and len(self.alive) > 1:  # a start without any is an error
            self.account.delete(name)
            del self.alive[name]
            self.deleted.add(name)

    def restart(self, _: str) -> None:
        self.spark.stop()
        self.spark.start()

    def fail(self, _: str) -> None:
        self.spark.trigger(fail=True)

    def trigger(self, _: str) -> None:
        self.spark.trigger()

    def handed_out(self) -> Counter[bytes]:
        return Counter(data for _, _, data in self.spark.rows)


@pytest.mark.parametrize("seed", range(4))
def test_each_record_of_a_stream_that_stays_is_in_one_batch(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "_LONGEST_WAIT_SECONDS", 0.05)
    comings = Comings(random.Random(seed))
    try:
        for _ in range(30):
            comings.act()
        expected = {data for of_one in comings.alive.values() for data in of_one}

        def all_came() -> bool:
            comings.spark.trigger()
            return expected <= comings.handed_out().keys()

        wait_until(all_came, "everything on the streams that are there")
        assert set(comings.handed_out().values()) <= {1}, "of a stream that is gone at most once, too"
    finally:
        comings.spark.stop()
