"""Several records of a shard at a time, through the whole engine: each ends once, keys keep their order."""

import asyncio
import threading
from collections import Counter, defaultdict
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.model.handler import Reject, RetryLater
from kinesis_spout.model.record import Record
from tests.unit.spark.driver.world import EngineWorld

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.no_second_run

KEYS = "abcdef"
RETRY_LIMIT = 2
MOST_TASKS = 4
"""Two batches with two tasks each."""


class Script:
    """What a handler does at each delivery of each record, drawn from a seed. Thread-safe. Mutable."""

    def __init__(self, seed: int, *, hangs: bool) -> None:
        self._seed = seed
        self._hangs = hangs
        self._lock = threading.Lock()
        self._here: Counter[str | None] = Counter()
        self.most_together = 0
        self.keys_together: set[str | None] = set()
        """Keys of which several records were under way at a time."""
        self.deliveries: defaultdict[str | None, list[tuple[int, int, bool]]] = defaultdict(list)
        """By key: (number, attempt, whether it succeeded)."""

    def act(self, record: Record) -> None:
        self._come(record)
        try:
            self._turn(record).wait(0.001)
            self._end(record)
        finally:
            self._go(record)

    async def act_later(self, record: Record) -> None:
        self._come(record)
        try:
            await asyncio.sleep(self._random(record).choice([0, 0, 0.001]))
            if self._hangs and self._random(record).random() < 0.05:
                await asyncio.sleep(3600)
            self._end(record)
        finally:
            self._go(record)

    def _random(self, record: Record) -> Random:
        return Random(f"{self._seed} {record.data!r} {record.attempt}")

    def _turn(self, record: Record) -> threading.Event:
        event = threading.Event()
        if self._random(record).random() < 0.7:
            event.set()
        return event

    def _come(self, record: Record) -> None:
        with self._lock:
            self._here[record.partition_key] += 1
            self.most_together = max(self.most_together, self._here.total())
            if self._here[record.partition_key] > 1:
                self.keys_together.add(record.partition_key)

    def _go(self, record: Record) -> None:
        with self._lock:
            self._here[record.partition_key] -= 1

    def _end(self, record: Record) -> None:
        draw = self._random(record).random()
        error: Exception | None = None
        if draw < 0.1:
            error = ValueError("no")
        elif draw < 0.15:
            error = Reject("never")
        elif draw < 0.2:
            error = RetryLater(0.01)
        with self._lock:
            entry = int(record.data), record.attempt, error is None
            self.deliveries[record.partition_key].append(entry)
        if error is not None:
            raise error


SHARDS = 2


@pytest.mark.parametrize(
    ("is_async", "order", "concurrency"),
    [
        (False, "unordered", 8),
        (False, "key", 8),
        (False, "key", 2),
        (True, "unordered", 8),
        (True, "key", 8),
        (True, "unordered", 1),
        (True, "shard", 1),
    ],
)
def test_every_record_ends_once_and_within_its_limits(
    world: EngineWorld,
    is_async: bool,  # noqa: FBT001 - a parameter of the test
    order: str,
    concurrency: int,
) -> None:
    seed = Random().randrange(1_000_000)
    print("seed", seed)  # noqa: T201 - shown when it fails
    script = Script(seed, hangs=is_async)
    random = Random(seed)
    keys = {}
    for number in range(300):
        keys[number] = random.choice(KEYS)
        world.put(str(number), key=keys[number])
    handle: Callable[[Record], Any] = script.act_later if is_async else script.act
    running = world.start(
        handle,
        concurrency=concurrency,
        order=order,
        retry_limit=RETRY_LIMIT,
        max_spared_seconds=0,
        record_timeout_seconds=0.2 if is_async else None,
    )
    running.query.processAllAvailable()
    running.stop()

    counters, letters = running.query.counters, world.dead_letters.letters
    assert (counters.acked + counters.dead_lettered, counters.dead_lettered) == (300, len(letters))
    attempts = Counter(int(letter.data) for letter in letters)
    assert max(attempts.values(), default=1) == 1
    assert all(letter.attempts <= 1 + RETRY_LIMIT for letter in letters)
    acked = [
        number for entries in script.deliveries.values() for number, _, succeeded in entries if succeeded
    ]
    assert sorted([*acked, *attempts]) == sorted(keys)
    assert script.most_together <= concurrency * MOST_TASKS
    if concurrency == 8 and order == "unordered":
        assert script.most_together > 1
    if order == "unordered":
        return
    assert script.keys_together == set()
    for entries in script.deliveries.values():
        numbers = [number for number, _, _ in entries]
        assert numbers == sorted(numbers), (
            "a record was begun while an earlier one of its key was not finished"
        )


def test_a_record_that_times_out_is_failed_and_counted_and_delays_no_other(world: EngineWorld) -> None:
    seen: list[str] = []

    async def handle(record: Record) -> None:
        if record.data == b"hangs":
            await asyncio.sleep(3600)
        seen.append(record.data.decode())

    world.put("a", "hangs", "b")
    running = world.start(handle, concurrency=2, record_timeout_seconds=1.0, retry_limit=1)
    running.query.processAllAvailable()

    (letter,) = world.dead_letters.letters
    assert (letter.data, letter.attempts) == (b"hangs", 2)
    assert letter.error == "timed out after 1 s (record_timeout_seconds)"
    assert "in handle" in (letter.traceback or "")
    assert running.query.counters.timed_out == 2
    assert sorted(seen) == ["a", "b"]


def test_settings_that_cannot_be_kept_are_refused(world: EngineWorld) -> None:
    with pytest.raises(InvalidConfig, match="concurrency: expected 1 with order shard"):
        world.start(print, order="shard", concurrency=2)
    with pytest.raises(InvalidConfig, match="at most half of message_timeout_seconds, which is 10"):
        world.start(print, record_timeout_seconds=6.0, message_timeout_seconds=10.0)
