"""Outages and poison, played on ``StateManager`` under a clock of their own: who is given up, and when all flows.

A *history* is a stream with a rate, a handler of which a share of the calls fails for a while, records that always
fail, and an application of one or more members that may restart. ``python -m tests.model.outages 1000`` plays a
thousand random ones and prints what came of them.
"""

import random
import sys
from collections import Counter
from dataclasses import dataclass, field
from math import inf

from shard_state import (
    Capacity,
    Checkpoint,
    Exhausted,
    Order,
    Position,
    RetryPolicy,
    SequenceNumber,
    Shard,
    StateManager,
)
from shard_state.checkpoint.checkpoint import next_ownership
from tests.support.core.reading import may_read

COMMIT_SECONDS = 1.0
Taken = tuple[str, SequenceNumber, str, int]
"""Shard, record, key and attempt."""
POLICY = RetryPolicy()
RETRIES_SECONDS = POLICY.all_seconds
FLOWS_AGAIN_SECONDS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What happens. Times are in seconds, from the start."""

    seed: int = 1
    rate: float = 1.0
    """Records a second, over all members."""
    failing: float = 0.0
    """The share of the handler's calls that fail in the outage."""
    outage: tuple[float, float] = (inf, inf)
    poison: float = 0.0
    """The share of records that always fail."""
    poison_after: int = 0
    """So many records are good in any case."""
    most: int = 1_000_000
    """So many records are written."""
    writes_until: float = 1e9
    ends_at: float = 300.0
    members: int = 1
    restarts_every: float = inf
    """Within the outage, all members do."""
    orderly: bool = True
    """Whether a restart commits first."""
    shards: int = 2
    """Of each member."""
    keys: int = 1_000_000
    order: Order = Order.UNORDERED
    retry: RetryPolicy = POLICY
    max_spared_seconds: float = 600.0


@dataclass(slots=True)
class Result:
    """What came of it. Mutable."""

    in_outage: int = 0
    good: int = 0
    good_given_up: int = 0
    poison: int = 0
    poison_given_up: list[float] = field(default_factory=list)
    """How long each took, from its first failure."""
    deliveries: int = 0
    unfinished: int = 0
    flows_after: float = inf
    """How long after the outage nothing waited any more that was written more than a second ago."""


class _Member:
    def __init__(self, at: int, history: History) -> None:
        self.history = history
        self.random = random.Random(history.seed * 1_000 + at)
        self.stored = {
            f"shardId-{at:03}{number:09}": Checkpoint(start=Position.trim_horizon(), parents=())
            for number in range(history.shards)
        }
        self.records: dict[str, list[tuple[SequenceNumber, str]]] = {each: [] for each in self.stored}
        self.read: dict[str, int] = {}
        self.start()

    def start(self) -> None:
        history = self.history
        self.manager = StateManager(
            app_instance="application",
            random=self.random.random,
            retry=history.retry,
            order=history.order,
            capacity=Capacity(records=100_000, holes=100_000),
            max_spared_seconds=history.max_spared_seconds,
        )
        self.manager.listed([Shard(shard_id=each) for each in self.stored], self.stored)
        for shard_id, stored in self.stored.items():
            self.stored[shard_id] = Checkpoint.decode(next_ownership(stored, stored).encode())
            self.manager.acquired(shard_id, self.stored[shard_id])
            state = self.manager.shard(shard_id)
            assert state is not None
            position, records = state.position, self.records[shard_id]
            first = len(records)
            while first and position.includes(records[first - 1][0]):
                first -= 1
            self.read[shard_id] = first

    def commit(self) -> None:
        pending = self.manager.to_commit()
        self.stored |= {each.shard_id: Checkpoint.decode(each.checkpoint.encode()) for each in pending}
        self.manager.committed(pending)

    def take(self, now: float) -> Taken | None:
        """Take what the plain door would hand out next."""
        blame = self.manager.blame
        kinds = (True, False) if blame.is_slowed and blame.fresh_first else (False, True)
        for fresh in kinds:
            for shard_id in self.manager.turns.round():
                taken = self.fresh(shard_id, now) if fresh else self.retry(shard_id, now)
                if taken is not None:
                    self.manager.turns.served(shard_id)
                    return taken
        return None

    def fresh(self, shard_id: str, now: float) -> Taken | None:
        records = self.records[shard_id]
        if self.manager.blame.is_slowed and not self.manager.blame.allowance(now):
            return None
        while self.read[shard_id] < len(records) and may_read(self.manager, shard_id):
            sequence, key = records[self.read[shard_id]]
            self.read[shard_id] += 1
            emission = self.manager.emit(shard_id, sequence, key, now)
            if emission.deliver:
                return shard_id, sequence, key, emission.attempt
        return None

    def retry(self, shard_id: str, now: float) -> Taken | None:
        retry = self.manager.take_retry(shard_id, now)
        if retry is None:
            return None
        return shard_id, retry.sequence, str(retry.sequence.number % self.history.keys), retry.attempt

    def next_at(self, now: float) -> float:
        due = self.manager.next_due()
        blame = self.manager.blame
        waits = any(self.read[each] < len(records) for each, records in self.records.items())
        at = inf if due is None else due
        if blame.is_slowed and waits:
            at = min(at, blame.next_try_at)
        return max(at, now + 0.01)


def play(history: History) -> Result:
    return _Play(history).run()


class _Play:
    """One history under way. Mutable."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.result = Result()
        self._chance = random.Random(history.seed)
        self._members = [_Member(at, history) for at in range(history.members)]
        self._poison: set[SequenceNumber] = set()
        self._failed_at: dict[SequenceNumber, float] = {}
        self._unfinished: dict[SequenceNumber, float] = {}
        """When they were written."""
        self._written = 0
        self._next_write, self._next_commit = 0.0, COMMIT_SECONDS
        self._next_restart = history.outage[0] + history.restarts_every

    def run(self) -> Result:
        now = 0.0
        while now < self.history.ends_at:
            while self._next_write <= now:
                self._write(self._next_write)
            if self._next_commit <= now:
                for member in self._members:
                    member.commit()
                self._next_commit += COMMIT_SECONDS
            if self._next_restart <= now:
                self._restart()
            for member in self._members:
                while (taken := member.take(now)) is not None:
                    self._handle(member, taken, now)
            self._look_whether_all_flows(now)
            events = (self._next_write, self._next_commit, self._next_restart)
            now = min(*events, *(member.next_at(now) for member in self._members))
        self.result.poison = len(self._poison)
        self.result.good = self._written - len(self._poison)
        self.result.unfinished = len(self._unfinished)
        return self.result

    def _write(self, at: float) -> None:
        history, members = self.history, self._members
        member = members[self._written % len(members)]
        shard_id = list(member.records)[self._written // len(members) % history.shards]
        sequence = SequenceNumber(10**50 + self._written)
        member.records[shard_id].append((sequence, str(sequence.number % history.keys)))
        self._unfinished[sequence] = at
        if self._written >= history.poison_after and self._chance.random() < history.poison:
            self._poison.add(sequence)
        self.result.in_outage += history.outage[0] <= at < history.outage[1]
        self._written += 1
        again = at + self._chance.expovariate(history.rate)
        goes_on = again < history.writes_until and self._written < history.most
        self._next_write = again if goes_on else inf

    def _restart(self) -> None:
        for member in self._members:
            if self.history.orderly:
                member.commit()
            member.start()
        again = self._next_restart + self.history.restarts_every
        self._next_restart = again if again < self.history.outage[1] else inf

    def _handle(self, member: _Member, taken: Taken, now: float) -> None:
        shard_id, sequence, key, attempt = taken
        began, mended = self.history.outage
        self.result.deliveries += 1
        in_outage = began <= now < mended
        if sequence not in self._poison and not (in_outage and self._chance.random() < self.history.failing):
            member.manager.ack(shard_id, sequence, now)
            self._unfinished.pop(sequence, None)
            return
        self._failed_at.setdefault(sequence, now)
        decision = member.manager.fail(shard_id, sequence, now, attempt=attempt, partition_key=key)
        if isinstance(decision, Exhausted):
            member.manager.dead_lettered(shard_id, sequence, now)
            self._unfinished.pop(sequence, None)
            if sequence in self._poison:
                self.result.poison_given_up.append(now - self._failed_at[sequence])
            else:
                self.result.good_given_up += 1

    def _look_whether_all_flows(self, now: float) -> None:
        mended = self.history.outage[1]
        if self.result.flows_after == inf and now >= mended:
            good = (at for each, at in self._unfinished.items() if each not in self._poison)
            if min(good, default=inf) > now - 1.0:
                self.result.flows_after = now - mended


def random_outage(seed: int) -> History:
    """One of any kind that is shorter than records are spared."""
    chance = random.Random(seed)
    rate, members = chance.choice([0.1, 0.3, 1.0, 5.0, 15.0, 60.0]), chance.choice([1, 1, 3, 10])
    seconds = chance.uniform(20, 550 if rate < 5 else 900 / rate)
    warm = max(60.0, 12 * members / rate)
    return History(
        seed=seed,
        rate=rate,
        failing=chance.choice([0.3, 0.5, 0.8, 0.9, 0.95, 0.99, 1.0]),
        outage=(warm, warm + seconds),
        writes_until=warm + seconds + 60,
        ends_at=warm + seconds + 120,
        members=members,
        shards=chance.choice([1, 2]),
        restarts_every=chance.choice([inf, inf, 5.0, 20.0]),
        orderly=chance.random() < 0.5,
        order=chance.choice([Order.UNORDERED, Order.UNORDERED, Order.KEY]),
        keys=chance.choice([50, 1_000_000]),
    )


def random_poison(seed: int) -> History:
    """Records that are at fault, among good ones, under a handler that works."""
    chance = random.Random(seed)
    rate, members = chance.choice([(1.0, 1), (5.0, 1), (5.0, 3), (15.0, 1), (15.0, 3), (60.0, 1)])
    seconds = max(60.0, 300 / rate)
    return History(
        seed=seed,
        rate=rate,
        poison=chance.choice([0.001, 0.01, 0.1, 0.3, 0.6]),
        failing=chance.choice([0.0, 0.0, 0.02]),
        outage=(0.0, seconds),
        writes_until=seconds,
        ends_at=seconds + 700,
        members=members,
        restarts_every=chance.choice([inf, inf, 20.0]),
        orderly=chance.random() < 0.5,
    )


def main(count: int) -> None:
    """Play so many random histories of each kind, and print what came of them."""
    total = Counter[str]()
    for seed in range(count):
        history = random_outage(seed)
        result = play(history)
        late = result.flows_after > FLOWS_AGAIN_SECONDS
        total["records in the outage"] += result.in_outage
        total["given up"] += result.good_given_up
        total["late"] += late
        total["unfinished"] += result.unfinished
        total["deliveries"] += result.deliveries
        if late or result.good_given_up:
            _say(result.good_given_up, "of", result.in_outage, result.flows_after, history)
    _say(count, "outages:", dict(total))
    total.clear()
    seconds: list[float] = []
    for seed in range(count):
        result = play(random_poison(seed))
        seconds += result.poison_given_up
        total["good"] += result.good
        total["good given up"] += result.good_given_up
        total["poison"] += result.poison
        total["unfinished"] += result.unfinished
    seconds.sort()
    at = {share: round(seconds[int(len(seconds) * share)], 1) for share in (0.5, 0.9, 0.99)}
    late_ones = sum(each > RETRIES_SECONDS + 30 for each in seconds)
    _say(count, "with poison:", dict(total), "seconds:", at, "later than its retries and 30 s:", late_ones)


def _say(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201 - for whoever runs it by hand


if __name__ == "__main__":
    main(int(sys.argv[1]))
