import threading
from collections.abc import Callable, Iterator

import pytest

from kinesis_spout.kinesis import Prefetcher
from kinesis_spout.kinesis.aggregated_record import UserRecord, aggregate
from kinesis_spout.model.errors import DataLoss, SpoutClosed, StreamNotFound, Throttled
from kinesis_spout.model.record import Record
from kinesis_spout.plain.buffered_shard import BufferedShard
from kinesis_spout.ports import Page
from kinesis_spout.testing import InMemoryShardGetter, InMemoryStream
from shard_state import Position
from tests.support import threads
from tests.support.consumer.buffered_shard import buffered_shard
from tests.support.waiting import wait_until

pytestmark = pytest.mark.no_second_run

SHARD = "shardId-000000000000"


@pytest.fixture
def prefetcher() -> Iterator[Prefetcher]:
    with Prefetcher(most=3) as prefetcher:
        yield prefetcher


@pytest.fixture
def stream() -> InMemoryStream:
    return InMemoryStream()


def _buffered(
    stream: InMemoryStream, prefetcher: Prefetcher, *, shard_id: str = SHARD, max_records: int = 10_000
) -> BufferedShard:
    getter = InMemoryShardGetter(stream, shard_id, Position.trim_horizon())
    return buffered_shard(getter, prefetcher, max_records=max_records, periods=(0.2, 0.2))


def _poll(getter: BufferedShard, count: int) -> list[bytes]:
    polled: list[Record] = []

    def has_enough() -> bool:
        while len(polled) < count and (taken := getter.poll()) is not None:
            polled.append(taken[0])
        return len(polled) == count

    wait_until(has_enough, f"{count} records")
    return [record.data for record in polled]


class GatedGetter:
    """A getter whose reads hang until the gate opens; says how many are under way."""

    position = Position.trim_horizon()
    ready_at = 0.0

    def when_ready(self, call: Callable[[], None]) -> None:
        """It is polled."""

    def close(self) -> None:
        """It holds nothing."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.reading = threading.Event()

    def read(self, limit: int) -> Page:
        self.reading.set()
        assert self.gate.wait(30), "the gate stayed shut"
        records = [Record(data=b"late", sequence_number=str(limit))]
        return Page(records=records, size_bytes=4, millis_behind_latest=0, at_end=False)


def test_records_come_in_order_and_polling_an_empty_buffer_gives_none(
    stream: InMemoryStream, prefetcher: Prefetcher
) -> None:
    payloads = [b"%d" % number for number in range(30)]
    getter = _buffered(stream, prefetcher)
    assert getter.poll() is None
    for payload in payloads:
        stream.put(payload, "key")

    assert _poll(getter, 30) == payloads
    assert getter.poll() is None


def test_a_full_buffer_drops_no_record(stream: InMemoryStream, prefetcher: Prefetcher) -> None:
    payloads = [b"%d" % number for number in range(25)]
    for payload in payloads:
        stream.put(payload, "key")
    getter = _buffered(stream, prefetcher, max_records=10)
    wait_until(lambda: getter.buffered[0] == 10, "a full buffer")

    assert getter.buffered == (10, 10 * (1 + len("key")))
    assert _poll(getter, 25) == payloads


def test_no_page_is_fetched_while_enough_bytes_are_at_hand(
    stream: InMemoryStream, prefetcher: Prefetcher
) -> None:
    for _ in range(4):
        stream.put(b"x" * 100, "key")
    source = InMemoryShardGetter(stream, SHARD, Position.trim_horizon())
    getter = buffered_shard(source, prefetcher, max_records=2, max_bytes=150)
    wait_until(lambda: getter.buffered[0] == 2, "two records at hand")

    assert getter.poll() is not None
    assert getter.buffered == (1, 103)
    assert _poll(getter, 3) == [b"x" * 100] * 3


def test_the_end_is_said_when_the_last_page_is_fetched_and_consumed(
    stream: InMemoryStream, prefetcher: Prefetcher
) -> None:
    stream.put(b"one", "key")
    stream.put(b"two", "key")
    stream.split(SHARD)
    getter = _buffered(stream, prefetcher)
    wait_until(lambda: getter.buffered[0] == 2, "the last page")

    assert not getter.at_end
    assert _poll(getter, 1) == [b"one"]
    assert not getter.at_end
    assert _poll(getter, 1) == [b"two"]
    assert getter.at_end


def test_a_retriable_error_is_retried_and_visible(stream: InMemoryStream, prefetcher: Prefetcher) -> None:
    stream.put(b"one", "key")
    stream.throttle(times=2)
    getter = _buffered(stream, prefetcher)
    wait_until(lambda: getter.last_error is not None, "the first throttle")

    seen = getter.last_error
    assert isinstance(seen, Throttled)
    assert getter.poll() is None
    assert _poll(getter, 1) == [b"one"]
    assert getter.last_error is None


def test_any_other_error_is_raised_after_the_records_before_it(
    stream: InMemoryStream, prefetcher: Prefetcher
) -> None:
    stream.put(b"one", "key")
    getter = _buffered(stream, prefetcher)
    wait_until(lambda: getter.buffered[0] == 1, "the first record")
    stream.delete()
    wait_until(lambda: getter.failed, "the stream to be missed")

    assert _poll(getter, 1) == [b"one"]
    for _ in range(2):
        with pytest.raises(StreamNotFound):
            getter.poll()
    assert not getter.at_end


def test_data_loss_reaches_the_caller(stream: InMemoryStream, prefetcher: Prefetcher) -> None:
    first, second = (stream.put(payload, "key") for payload in (b"one", b"two"))
    stream.trim(SHARD, second.sequence)
    source = InMemoryShardGetter(stream, SHARD, Position.at(first.sequence))
    getter = buffered_shard(source, prefetcher)
    wait_until(lambda: getter.failed, "the loss to be met")

    with pytest.raises(DataLoss):
        getter.poll()


def test_a_defect_of_a_getter_reaches_the_caller(prefetcher: Prefetcher) -> None:
    class Broken(GatedGetter):
        def read(self, limit: int) -> Page:
            raise ZeroDivisionError(limit)

    getter = buffered_shard(Broken(), prefetcher)
    wait_until(lambda: getter.failed, "the defect to be met")

    with pytest.raises(ZeroDivisionError):
        getter.poll()


def test_polling_never_waits_for_a_read(prefetcher: Prefetcher) -> None:
    source = GatedGetter()
    getter = buffered_shard(source, prefetcher)
    assert source.reading.wait(30)

    assert getter.poll() is None  # one that waited would meet the error of a gate that stays shut

    source.gate.set()
    assert _poll(getter, 1) == [b"late"]
    getter.close()


def test_a_hanging_shard_does_not_hold_up_the_others(stream: InMemoryStream, prefetcher: Prefetcher) -> None:
    source = GatedGetter()
    hanging = buffered_shard(source, prefetcher)
    assert source.reading.wait(30)
    getter = _buffered(stream, prefetcher)
    stream.put(b"one", "key")

    assert _poll(getter, 1) == [b"one"]

    hanging.close()
    source.gate.set()


def test_a_thousand_idle_shards_need_no_thread_each_and_delay_nobody() -> None:
    idle, busy = InMemoryStream(shards=1000), InMemoryStream()
    with Prefetcher(most=4) as prefetcher:
        before = threads.named()
        getters = [_buffered(idle, prefetcher, shard_id=shard.shard_id) for shard in idle.list_shards()]
        wait_until(
            lambda: all(getter.millis_behind_latest is not None for getter in getters), "a page of each"
        )
        assert len(threads.named() - before) <= 5  # one that polls, and those of what may block

        getter = _buffered(busy, prefetcher)
        for number in range(100):
            busy.put(b"%d" % number, "key")
        assert len(_poll(getter, 100)) == 100


def test_after_closing_there_are_no_records_and_no_more_reads(prefetcher: Prefetcher) -> None:
    source = GatedGetter()
    getter = buffered_shard(source, prefetcher)
    assert source.reading.wait(30)

    getter.close()
    getter.close()
    source.reading.clear()
    source.gate.set()
    prefetcher.close()

    assert getter.buffered == (0, 0)
    assert not source.reading.is_set()
    with pytest.raises(SpoutClosed):
        getter.poll()


def test_it_names_what_comes_next_and_keeps_it(stream: InMemoryStream, prefetcher: Prefetcher) -> None:
    getter = _buffered(stream, prefetcher)
    assert getter.ahead(2) is None
    first, second, third = (stream.put(payload, "key").sequence for payload in (b"1", b"2", b"3"))
    wait_until(lambda: getter.buffered[0] == 3, "three records")
    assert (getter.ahead(2), getter.ahead(10)) == ((first, second), (first, third))
    assert _poll(getter, 3) == [b"1", b"2", b"3"]
    assert getter.ahead(2) is None


def _put_aggregated(stream: InMemoryStream, carriers: int, inside: int) -> list[bytes]:
    payloads = [[b"%d.%d" % (carrier, number) for number in range(inside)] for carrier in range(carriers)]
    for each in payloads:
        stream.put_aggregated(UserRecord("key", payload) for payload in each)
    return [payload for each in payloads for payload in each]


def test_user_records_are_polled_one_by_one(stream: InMemoryStream, prefetcher: Prefetcher) -> None:
    payloads = _put_aggregated(stream, carriers=4, inside=5)

    assert _poll(_buffered(stream, prefetcher), 20) == payloads


def test_after_a_page_of_aggregates_fewer_records_are_asked_for(
    stream: InMemoryStream, prefetcher: Prefetcher
) -> None:
    payloads = _put_aggregated(stream, carriers=1, inside=8)
    getter = _buffered(stream, prefetcher, max_records=20)
    wait_until(lambda: getter.buffered[0] == 8, "the first aggregate")
    payloads += _put_aggregated(stream, carriers=20, inside=8)
    wait_until(lambda: getter.buffered[0] >= 16, "as much as there is room for")

    most = 0
    polled: list[bytes] = []
    while len(polled) < len(payloads):
        most = max(most, getter.buffered[0])
        polled += _poll(getter, 1)

    assert polled == payloads
    assert most <= 20 + 8


def test_user_records_weigh_more_than_their_data(stream: InMemoryStream, prefetcher: Prefetcher) -> None:
    _put_aggregated(stream, carriers=1, inside=100)
    getter = _buffered(stream, prefetcher)
    wait_until(lambda: getter.buffered[0] == 100, "the aggregate")

    assert getter.buffered[1] > 100 * 200
    _poll(getter, 100)
    assert getter.buffered == (0, 0)


def test_pages_with_something_odd_are_told_of(stream: InMemoryStream, prefetcher: Prefetcher) -> None:
    odd: list[Page] = []
    stream.put(aggregate([UserRecord("key", b"x")])[:-1] + b"?", "key")
    buffered_shard(InMemoryShardGetter(stream, SHARD, Position.trim_horizon()), prefetcher, took=odd.append)

    wait_until(lambda: bool(odd), "the page")
    assert [page.damaged_aggregates for page in odd] == [1]
