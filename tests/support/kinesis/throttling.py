"""Shards that take so many records a second, and a producer that puts as fast as it may, in virtual time."""

import heapq
import random
from dataclasses import dataclass, field
from itertools import count, islice
from typing import TYPE_CHECKING, Any

from kinesis_spout.model.errors import BufferFull
from kinesis_spout.testing import ManualClock, SteppedProducer
from tests.support.kinesis.writable import THROTTLED, WritableKinesis

if TYPE_CHECKING:
    from kinesis_spout.producer.sender import WorkToDo

CALL_SECONDS = 0.01
_LOOK_SECONDS = 0.02
_AT_ONCE = 50


@dataclass
class ThrottlingStream:
    """A stream of shards with a token bucket each, which holds a second's worth; others refuse by chance.

    ``rates`` are records a second; ``refused_share`` is refused at any rate.
    """

    rates: list[float]
    refused_share: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)
    puts_per_second: float = 1e9

    def __post_init__(self) -> None:
        self.clock = ManualClock()
        self.kinesis = WritableKinesis(s=len(self.rates))
        self.kinesis.refuses = self._refuses
        self.taken = [0] * len(self.rates)
        self.refused = 0
        self._tokens = list(self.rates)
        self._filled_at = [0.0] * len(self.rates)
        self._chance = random.Random(1)
        self.producer = SteppedProducer(
            "s", client=self.kinesis.client, clock=self.clock, **{"when_full": "refuse"} | self.options
        )
        self._keys = [self._keys_of(shard) for shard in range(len(self.rates))]
        self._put = [0] * len(self.rates)
        self._numbers = count()
        self._calls: list[tuple[float, int, WorkToDo]] = []

    def run(self, seconds: float) -> None:
        """Put on every shard whatever is taken over, and take an answer for each call 10 ms later."""
        until = self.clock.monotonic() + seconds
        while (now := self.clock.monotonic()) < until:
            while self._calls and self._calls[0][0] <= now:
                self.producer.do(heapq.heappop(self._calls)[2])
            self._fill_buffer(now)
            while (work := self.producer.next_work()) is not None:
                heapq.heappush(self._calls, (now + CALL_SECONDS, next(self._numbers), work))
            self.kinesis.calls.clear()
            due = [now + _LOOK_SECONDS, *(at for at, _, _ in self._calls[:1])]
            due += [self.producer.due_at] if self.producer.due_at > now else []
            self.clock.advance(max(0.0005, min(due) - now))

    def _fill_buffer(self, now: float) -> None:
        left = min(4_000, int(now * self.puts_per_second) + 1 - sum(self._put))
        shards = list(range(len(self.rates)))
        while shards and left > 0:
            for shard in list(shards):
                try:
                    for _ in range(min(left, _AT_ONCE)):
                        key = self._keys[shard][self._put[shard] % len(self._keys[shard])]
                        self.producer.put(b"x" * 100, key)
                        self._put[shard] += 1
                        left -= 1
                except BufferFull:
                    shards.remove(shard)

    def _keys_of(self, shard: int) -> list[str]:
        keys = (f"key-{number}" for number in count())
        return list(islice((key for key in keys if self._number(key) == shard), 2_000))

    def _number(self, key: str) -> int:
        return int(self.kinesis.shard_of("s", key)[-1])

    def _refuses(self, _stream: str, shard_id: str, _record: dict[str, Any]) -> str | None:
        shard, now = int(shard_id[-1]), self.clock.monotonic()
        rate = self.rates[shard]
        self._tokens[shard] = min(rate, self._tokens[shard] + (now - self._filled_at[shard]) * rate)
        self._filled_at[shard] = now
        if self._tokens[shard] < 1 or self._chance.random() < self.refused_share:
            self.refused += 1
            return THROTTLED
        self._tokens[shard] -= 1
        self.taken[shard] += 1
        return None
