"""What a whole spout reads within its budgets: counted at the stream, by the clock."""

from collections.abc import Sequence
from itertools import pairwise

import pytest

from kinesis_spout.kinesis.pace import ApplicationBudget, ReadPace, ShardPaces
from kinesis_spout.plain.record_spout import RecordSpout
from kinesis_spout.ports import Page
from kinesis_spout.testing import (
    InMemoryStream,
    InMemoryStreams,
    InMemoryZooKeeper,
    ManualClock,
    SteppedSpout,
    in_memory_ports,
)

_RECORD_BYTES = 50_000


class _WatchedStream(InMemoryStream):
    """Notes when how much was read, of which shard."""

    def __init__(self, *, shards: int, clock: ManualClock) -> None:
        super().__init__("orders", shards=shards, clock=clock)
        self.reads: list[tuple[float, str, int]] = []

    def get_records(self, iterator: str, limit: int) -> tuple[Page, str | None]:
        page, following = super().get_records(iterator, limit)
        self.reads.append((self.clock.monotonic(), iterator.split(" ", maxsplit=1)[0], page.size_bytes))
        return page, following


def _stream(clock: ManualClock, *, shards: int = 4, records: int = 200) -> _WatchedStream:
    stream = _WatchedStream(shards=shards, clock=clock)
    for _ in range(records):
        stream.put(bytes(_RECORD_BYTES))
    return stream


def _spout(
    stream: _WatchedStream,
    zookeeper: InMemoryZooKeeper,
    *,
    pace: ReadPace | None = None,
    limit: int | None = None,
) -> SteppedSpout:
    paces = ShardPaces(stream.clock, pace=pace, budget=ApplicationBudget(limit), jitter=lambda: 0.0)
    ports = in_memory_ports(stream, zookeeper, paces=paces)
    return SteppedSpout(
        ports=ports,
        stream="orders",
        app="billing",
        initial_position="trim_horizon",
        max_records_per_fetch=2,
        poll_interval_seconds=0.2,
    )


def _read_for(spouts: Sequence[RecordSpout], clock: ManualClock, seconds: float) -> int:
    acked, until = 0, clock.monotonic() + seconds
    while clock.monotonic() < until:
        for spout in spouts:
            while (emitted := spout.next_tuple()) is not None:
                spout.ack(emitted.message_id)
                acked += 1
        clock.advance(0.05)
    return acked


def test_all_shards_together_are_read_within_the_budget_of_the_application() -> None:
    clock = ManualClock()
    stream = _stream(clock)
    with _spout(stream, InMemoryZooKeeper(), limit=500_000).open() as spout:
        assert _read_for([spout], clock, 30.0) == 200

    pages = [(at, size_bytes) for at, _, size_bytes in stream.reads if size_bytes]
    for first, (begin, _) in enumerate(pages):
        read_bytes = 0
        for end, size_bytes in pages[first:]:
            read_bytes += size_bytes
            assert read_bytes <= 500_000 * (end - begin) + 4 * 2 * _RECORD_BYTES + 1
    assert 18.0 <= pages[-1][0] - pages[0][0] <= 24.0


def _streams(clock: ManualClock, *names: str) -> tuple[InMemoryStreams, dict[str, _WatchedStream]]:
    """Streams with a backlog each, in an account in memory."""
    account, watched = InMemoryStreams(clock=clock), {}
    for name in names:
        account.create(name)
        account.streams[name] = watched[name] = _stream(clock, records=400)
    return account, watched


def test_several_streams_are_read_within_one_budget_and_one_that_ends_leaves_its_part() -> None:
    clock = ManualClock()
    account, watched = _streams(clock, "orders", "refunds", "returns")
    spout = SteppedSpout(
        ports=account.process(),
        stream="orders,refunds,returns",
        app="billing",
        initial_position="trim_horizon",
        max_records_per_fetch=2,
        poll_interval_seconds=0.2,
        max_total_fetch_bytes_per_second=500_000,
    )

    def read_between(begin: float, end: float) -> dict[str, int]:
        return {
            name: sum(size_bytes for at, _, size_bytes in stream.reads if begin <= at < end)
            for name, stream in watched.items()
        }

    with spout.open():
        _read_for([spout], clock, 20.0)
        together = read_between(10.0, 20.0)
        watched["returns"].delete()
        _read_for([spout], clock, 20.0)
        left = read_between(30.0, 40.0)

    pages = 4 * 2 * _RECORD_BYTES
    assert 0.7 * 5_000_000 <= sum(together.values()) <= 5_000_000 + 3 * pages
    assert min(together.values()) >= 0.2 * 5_000_000, "each stream has its part"
    assert left["returns"] == 0
    assert 0.7 * 5_000_000 <= sum(left.values()) <= 5_000_000 + 2 * pages


def test_a_stream_with_a_backlog_has_what_the_idle_ones_of_the_application_leave() -> None:
    clock = ManualClock()
    account, watched = _streams(clock, "orders")
    for number in range(5):
        account.create(f"idle-{number}")
    spout = SteppedSpout(
        ports=account.process(),
        stream="orders,idle-*",
        app="billing",
        initial_position="trim_horizon",
        max_records_per_fetch=2,
        max_total_fetch_bytes_per_second=500_000,
    )
    with spout.open():
        _read_for([spout], clock, 30.0)

    read = sum(size_bytes for at, _, size_bytes in watched["orders"].reads if 10.0 <= at < 20.0)
    assert 0.7 * 5_000_000 <= read <= 5_000_000 + 4 * 2 * _RECORD_BYTES


def test_a_busy_shard_has_what_the_idle_ones_leave() -> None:
    clock = ManualClock()
    stream = _WatchedStream(shards=8, clock=clock)
    busy = stream.put(bytes(_RECORD_BYTES), "key").shard_id
    for _ in range(99):
        stream.put(bytes(_RECORD_BYTES), "key")
    with _spout(stream, InMemoryZooKeeper(), limit=500_000).open() as spout:
        assert _read_for([spout], clock, 14.0) == 100
        assert _read_for([spout], clock, 10.0) == 0

    last = max(at for at, shard_id, size_bytes in stream.reads if shard_id == busy and size_bytes)
    assert last <= 13.0, "an eighth of the budget would take 80 s"
    idle_polls = [at for at, shard_id, _ in stream.reads if shard_id != busy]
    assert len(idle_polls) > 7 * 5, "a shard that has nothing is polled, whatever the budget"


def test_two_members_share_the_budget_and_the_one_that_is_left_has_all_of_it() -> None:
    clock = ManualClock()
    stream = _stream(clock, records=600)
    zookeeper = InMemoryZooKeeper()
    one, other = (_spout(stream, zookeeper, limit=500_000) for _ in range(2))
    one.open()
    other.open()
    _read_for([one, other], clock, 10.0)
    both = sum(size_bytes for at, _, size_bytes in stream.reads if 5.0 <= at < 10.0)
    other.close()
    _read_for([one], clock, 15.0)
    alone = sum(size_bytes for at, _, size_bytes in stream.reads if 20.0 <= at < 25.0)
    one.close()

    assert 0.7 * 2_500_000 <= both <= 2_500_000 + 8 * 2 * _RECORD_BYTES
    assert 0.7 * 2_500_000 <= alone <= 2_500_000 + 4 * 2 * _RECORD_BYTES


def test_a_shard_gives_no_more_calls_and_bytes_than_its_pace() -> None:
    clock = ManualClock()
    stream = _stream(clock, shards=1, records=40)
    pace = ReadPace(interval_seconds=1.0, bytes_per_second=50_000)
    with _spout(stream, InMemoryZooKeeper(), pace=pace).open() as spout:
        assert _read_for([spout], clock, 60.0) == 40

    begins = [at for at, _, _ in stream.reads]
    assert min(after - before for before, after in pairwise(begins)) >= 1.0 - 1e-6
    full = [at for at, _, size_bytes in stream.reads if size_bytes]
    assert full[-1] - full[0] == pytest.approx(19 * 2.0, abs=2.0)


def test_a_page_larger_than_the_budget_of_a_second_is_read_all_the_same() -> None:
    clock = ManualClock()
    stream = _stream(clock, shards=2, records=8)
    with _spout(stream, InMemoryZooKeeper(), limit=1_000).open() as spout:
        assert _read_for([spout], clock, 900.0) == 8


def test_an_idle_shard_is_polled_ever_more_rarely_and_at_once_often_when_something_comes() -> None:
    clock = ManualClock()
    stream = _WatchedStream(shards=1, clock=clock)
    with _spout(stream, InMemoryZooKeeper()).open() as spout:
        _read_for([spout], clock, 20.0)
        idle = [at for at, _, _ in stream.reads if at >= 10.0]
        stream.put(b"news")
        came_at = clock.monotonic()
        assert _read_for([spout], clock, 1.2) == 1
        _read_for([spout], clock, 1.0)
        busy = [at for at, _, _ in stream.reads if at >= came_at]

    assert 9 <= len(idle) <= 11, "once a second"
    assert len(busy) >= 4
