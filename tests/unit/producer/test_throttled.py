"""Shards that take less than a producer is given: it uses their rate, others go on, few records are refused."""

import time
import tracemalloc
from typing import Any

import pytest

from kinesis_spout.model.errors import BufferFull
from kinesis_spout.testing import SteppedProducer
from tests.support.kinesis.throttling import ThrottlingStream
from tests.support.kinesis.writable import THROTTLED, WritableKinesis

FREE = 1e9


@pytest.mark.parametrize(
    "options",
    [{}, {"max_buffered_records": 2_000, "order": "key"}],
    ids=["100,000 buffered", "2,000 buffered, by key"],
)
def test_shards_at_their_limit_are_used_to_95_percent_and_refuse_one_record_in_20_at_most(
    options: dict[str, Any],
) -> None:
    stream = ThrottlingStream([1_000.0] * 4, options=options)
    stream.run(20)
    shards_take = 4 * (20 + 1) * 1_000
    assert sum(stream.taken) >= 0.95 * shards_take
    assert stream.refused <= 0.05 * sum(stream.taken)


@pytest.mark.parametrize("buffered", [100_000, 2_000])
def test_the_shards_beside_a_hot_one_have_four_fifths_of_their_own_speed(buffered: int) -> None:
    speeds = []
    for rates in ([FREE] * 4, [1_000.0, FREE, FREE, FREE]):
        stream = ThrottlingStream(rates, options={"max_buffered_records": buffered})
        stream.run(2)
        speeds.append(stream.taken)
    assert min(speeds[1][1:]) >= 0.8 * min(speeds[0])
    assert speeds[1][0] >= 0.95 * 2_000


@pytest.mark.parametrize(("share", "least_of_free"), [(0.001, 0.9), (0.01, 0.9), (0.05, 0.8)])
def test_refusals_by_chance_cost_little_speed(share: float, least_of_free: float) -> None:
    free = ThrottlingStream([FREE] * 2)
    free.run(1)
    stream = ThrottlingStream([FREE] * 2, refused_share=share)
    stream.run(1)
    assert sum(stream.taken) >= least_of_free * sum(free.taken)


def test_where_a_third_is_refused_at_any_pace_the_producer_finds_out_and_goes_on_fast() -> None:
    stream = ThrottlingStream([FREE], refused_share=0.3, puts_per_second=10_000)
    stream.run(8)
    before = sum(stream.taken)
    stream.run(2)
    assert sum(stream.taken) - before >= 2 * 8_000


@pytest.mark.parametrize("share", [0.001, 0.01, 0.05, 0.3])
def test_one_record_a_second_is_put_within_seconds_whatever_share_is_refused(share: float) -> None:
    stream = ThrottlingStream([FREE] * 2, refused_share=share, puts_per_second=1.0)
    stream.run(200)
    assert sum(stream.taken) >= 195


def test_a_limit_that_rises_is_found_within_half_a_minute() -> None:
    stream = ThrottlingStream([500.0])
    stream.run(10)
    stream.rates[0] = 1_000.0
    stream.run(25)
    before = stream.taken[0]
    stream.run(5)
    assert stream.taken[0] - before >= 0.9 * 5_000


def test_a_shard_that_was_split_is_not_held_to_the_pace_of_its_parent() -> None:
    kinesis, taken = WritableKinesis(s=1), [0]

    def refuses(_stream: str, shard: str, _record: dict[str, Any]) -> str | None:
        taken[0] += 1
        return THROTTLED if shard == "s-0-0" and taken[0] % 2 else None

    kinesis.refuses = refuses
    producer = SteppedProducer("s", client=kinesis.client)
    for number in range(5_000):
        producer.put(b"1", f"key-{number}")
    for _ in range(20):
        producer.step()
        producer.clock.advance(0.01)
    kinesis.reshard("s", 4)
    since = producer.clock.monotonic()
    producer.flush()
    assert producer.clock.monotonic() - since < 1.0


@pytest.mark.parametrize("order", ["unordered", "key"])
@pytest.mark.parametrize("aggregation", [False, True])
def test_all_that_waits_for_a_hot_shard_counts_in_its_share_of_the_buffer(
    order: str, *, aggregation: bool
) -> None:
    kinesis = WritableKinesis(s=4)
    kinesis.refuses = lambda _stream, shard, _: THROTTLED if shard == "s-0-0" else None
    producer = SteppedProducer(
        "s",
        client=kinesis.client,
        when_full="refuse",
        max_buffered_records=4_000,
        order=order,
        aggregation=aggregation,
        aggregation_max_bytes=1_024,
        linger_seconds=0.0,
    )
    keys = [f"key-{number}" for number in range(8_000)]
    hot = [key for key in keys if kinesis.shard_of("s", key) == "s-0-0"]
    free = [key for key in keys if key not in set(hot)]

    hanging: list[Any] = []

    def put(some: list[str], *, hangs: bool = True) -> int:
        taken = 0
        for number, key in enumerate(some):
            try:
                producer.put(b"1", key)
            except BufferFull:
                break
            taken += 1
            if hangs and number % 10 == 0:
                hanging.append(producer.next_work())
        return taken

    put(hot[:10], hangs=False)
    while producer.step():
        pass
    assert put(free[:2_000]) == 2_000
    assert 950 <= put(hot[10:]) <= 1_020  # an aggregate being filled is not counted
    with pytest.raises(BufferFull, match="a shard of s that refuses records and has its share of the buffer"):
        producer.put(b"1", hot[0])
    assert put(free[2_000:2_500]) == 500
    for work in filter(None, hanging):
        producer.do(work)
    while producer.step():
        pass
    assert producer.counts().sent == 2_500
    assert producer.counts().waiting <= 1_030


def test_all_of_the_buffer_is_used_where_all_shards_refuse() -> None:
    kinesis = WritableKinesis(s=2)
    kinesis.refuses = lambda *_: THROTTLED
    producer = SteppedProducer(
        "s", client=kinesis.client, when_full="refuse", max_buffered_records=400, linger_seconds=0.0
    )
    for number in range(100):
        producer.put(b"1", f"key-{number}")
    while producer.step():
        pass
    refused = 0
    for number in range(1_000):
        try:
            producer.put(b"1", f"key-{number}")
        except BufferFull:
            refused += 1
        producer.step()
    assert refused
    assert producer.counts().waiting >= 380


def test_dropping_the_oldest_takes_as_long_for_the_last_record_as_for_the_first_while_a_call_hangs() -> None:
    kinesis = WritableKinesis(s=1)
    producer = SteppedProducer(
        "s", client=kinesis.client, when_full="drop_oldest", max_buffered_records=5_000, linger_seconds=0.0
    )

    def put(count: int) -> float:
        started = time.thread_time()
        for number in range(count):
            producer.put(b"1", f"key-{number}")
        return time.thread_time() - started

    put(5_000)
    hanging = [producer.next_work() for _ in range(4)]
    first = put(2_000)
    put(10_000)
    # The shortest of several: what else the machine did is in the others.
    assert min(put(2_000) for _ in range(5)) < 3 * first
    for work in hanging:
        assert work is not None
        producer.do(work)
    producer.flush()
    counts = producer.counts()
    assert (counts.dropped, counts.sent) == (22_000, 5_000)


@pytest.mark.parametrize("refuses", [False, True])
def test_a_producer_that_drops_the_oldest_keeps_no_more_than_its_buffer(*, refuses: bool) -> None:
    kinesis = WritableKinesis(s=1)
    kinesis.refuses = lambda *_: THROTTLED
    producer = SteppedProducer(
        "s",
        client=kinesis.client,
        when_full="drop_oldest",
        max_buffered_bytes=2 << 20,
        linger_seconds=0.0,
    )
    producer.put(b"1", "key")
    while producer.step():  # until its shard has refused it
        pass
    tracemalloc.start()
    try:
        for number in range(500):
            producer.put(bytes(50_000), f"key-{number}")
            if not refuses:
                kinesis.refuses = lambda *_: None
                producer.flush()
                kinesis.calls.clear()
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    counts = producer.counts()
    assert (counts.dropped > 400, counts.sent > 500) == (refuses, not refuses)
    assert held_bytes < 6_000_000
