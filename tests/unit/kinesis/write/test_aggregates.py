"""Aggregates hold records of one shard; whatever is resharded, who reads only a shard's own loses nothing."""

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain, count
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError
from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.kinesis.aggregated_record import UserRecord, take_apart
from kinesis_spout.kinesis.retry_policy import CallRetryPolicy
from kinesis_spout.kinesis.write.hash_key_ranges import hash_key
from kinesis_spout.kinesis.write.put_records import CallLimits, Entry, PutOrder
from kinesis_spout.kinesis.write.record_putter import RecordPutter
from kinesis_spout.testing import ManualClock
from tests.support.kinesis.writable import THROTTLED, Sent, WritableKinesis

pytestmark = pytest.mark.no_second_run


def putter(kinesis: WritableKinesis, clock: ManualClock | None = None, **options: Any) -> RecordPutter:
    retry_policy = CallRetryPolicy(
        clock=clock or ManualClock(),
        deadline_seconds=options.pop("deadline_seconds", 60.0),
        jitter=random.Random(1).random,
    )
    return RecordPutter(
        kinesis.client,
        "s",
        aggregate_bytes=options.pop("max_bytes", 1_000),
        retry_policy=retry_policy,
        **options,
    )


def entry(number: int, key: str | None = None, explicit: str | None = None) -> Entry:
    return Entry(key or f"key-{number}", str(number).encode(), explicit, row=number)


def drain(to: RecordPutter) -> None:
    while to.waiting:
        to.put()
    assert to.waiting_bytes == 0


def add(to: RecordPutter, records: int, key: str | None = None) -> None:
    for number in range(records):
        to.add(entry(number, key))


def add_all(to: RecordPutter, records: int) -> None:
    add(to, records)
    drain(to)


def parts(sent: Sent) -> tuple[UserRecord, ...]:
    return take_apart(sent.data) or (UserRecord(sent.key, sent.data),)


def seen_in(sent: Sent) -> list[int]:
    return [int(part.data) for part in parts(sent)]


def taken(kinesis: WritableKinesis) -> list[Sent]:
    return [sent for call in kinesis.calls for sent in call if sent.taken]


def seen(kinesis: WritableKinesis) -> list[int]:
    """What a consumer has that takes records apart and leaves nothing out."""
    return [int(part.data) for sent in taken(kinesis) for part in parts(sent)]


def kept(kinesis: WritableKinesis, call: Iterable[Sent]) -> Iterator[UserRecord]:
    """What the KCL has of it: it leaves out every aggregate of which a record lies outside the shard."""
    for sent in call:
        first, last = kinesis.range_of("s", sent.shard)
        inside = [
            first <= hash_key(part.partition_key, part.explicit_hash_key) <= last for part in parts(sent)
        ]
        if sent.taken and all(inside):
            yield from parts(sent)


def seen_by_shard(kinesis: WritableKinesis) -> list[int]:
    return sorted(int(part.data) for part in kept(kinesis, chain.from_iterable(kinesis.calls)))


def test_records_of_a_shard_are_one_record_of_it() -> None:
    kinesis = WritableKinesis(s=4)
    add_all(putter(kinesis, max_bytes=50_000), 1_000)
    (call,) = kinesis.calls
    assert {sent.shard for sent in call} == {"s-0-0", "s-0-1", "s-0-2", "s-0-3"}
    assert len(call) == 4
    for sent in call:
        assert {kinesis.shard_of("s", part.partition_key) for part in parts(sent)} == {sent.shard}
    assert sorted(seen(kinesis)) == list(range(1_000))


def test_no_aggregate_weighs_more_than_it_may() -> None:
    kinesis = WritableKinesis(s=2)
    add_all(putter(kinesis, max_bytes=1_000), 1_000)
    assert all(len(sent.data) + len(sent.key) <= 1_000 for sent in taken(kinesis))
    assert len(taken(kinesis)) < 50


def test_a_record_that_fits_with_no_other_goes_as_it_is_and_in_its_place() -> None:
    kinesis = WritableKinesis(s=1)
    to = putter(kinesis, max_bytes=1_000)
    to.add(entry(0))
    to.add(entry(1))
    to.add(Entry("large", b"2".zfill(2_000), "7", row=2))
    to.add(entry(3))
    drain(to)
    assert [(sent.key, seen_in(sent)) for sent in taken(kinesis)] == [
        ("a", [0, 1]),
        ("large", [2]),
        ("key-3", [3]),
    ]


def test_an_explicit_hash_key_decides_on_the_shard_and_stays_with_its_record() -> None:
    kinesis = WritableKinesis(s=4)
    to = putter(kinesis)
    for number in range(8):
        to.add(entry(number, "same", str((number % 4) << 126)))
    drain(to)
    assert [(sent.shard, parts(sent)) for sent in taken(kinesis)] == [
        (
            f"s-0-{shard}",
            (
                UserRecord("same", str(shard).encode(), str(shard << 126)),
                UserRecord("same", str(shard + 4).encode(), str(shard << 126)),
            ),
        )
        for shard in range(4)
    ]


def test_counts_are_of_user_records() -> None:
    kinesis = WritableKinesis(s=2)
    to = putter(kinesis, max_bytes=50_000)
    add_all(to, 1_000)
    assert (to.counts.taken, to.counts.sent) == (1_000, 1_000)
    assert to.counts.taken_bytes == sum(len(f"key-{number}{number}") for number in range(1_000))


def test_calls_are_full_before_they_are_made() -> None:
    kinesis = WritableKinesis(s=2)
    to = putter(kinesis, limits=CallLimits(records=10))
    add(to, 2_000)
    assert len(kinesis.calls) > 4
    assert {len(call) for call in kinesis.calls} == {10}


def test_open_aggregates_can_be_put_at_any_time() -> None:
    kinesis = WritableKinesis(s=2)
    to = putter(kinesis)
    add(to, 10)
    assert (to.waiting, to.ready_at) == (1, float("-inf"))
    drain(to)
    assert to.ready_at == float("inf")
    assert sorted(seen(kinesis)) == list(range(10))


def test_after_a_split_an_aggregate_of_both_children_is_put_again_whole() -> None:
    kinesis = WritableKinesis(s=1)
    to = putter(kinesis, max_bytes=50_000)
    add(to, 100)
    kinesis.reshard("s", 2)
    drain(to)
    assert [len(parts(sent)) for sent in kinesis.calls[0]] == [100]
    assert sorted(seen(kinesis)) == sorted([*range(100), *range(100)])
    assert seen_by_shard(kinesis) == list(range(100))
    assert (to.counts.taken, to.counts.sent) == (100, 200)
    assert to.counts.taken_bytes == sum(len(f"key-{number}{number}") for number in range(100))


def test_after_a_split_an_aggregate_of_one_child_is_where_it_belongs() -> None:
    kinesis = WritableKinesis(s=1)
    to = putter(kinesis)
    add(to, 10, key="same")
    kinesis.reshard("s", 2)
    drain(to)
    assert seen(kinesis) == list(range(10))
    assert (to.counts.taken, to.counts.sent) == (10, 10)


def test_a_record_that_lies_in_no_shard_of_the_list_goes_by_itself() -> None:
    kinesis = WritableKinesis(s=4)
    kinesis.hides = {"s-0-2"}  # as if its children were not listed yet
    to = putter(kinesis, max_bytes=50_000)
    add_all(to, 200)
    assert seen_by_shard(kinesis) == list(range(200))
    assert {sent.shard for sent in taken(kinesis) if len(parts(sent)) > 1} == {"s-0-0", "s-0-1", "s-0-3"}
    assert all(len(parts(sent)) == 1 for sent in taken(kinesis) if sent.shard == "s-0-2")


def test_a_record_that_lies_in_no_shard_of_the_list_joins_no_earlier_one_of_its_key() -> None:
    kinesis = WritableKinesis(s=4)
    kinesis.hides = {"s-0-1"}
    to = putter(kinesis, order=PutOrder.KEY)
    for number, explicit in enumerate(("0", "1", str(1 << 126), "2")):
        to.add(entry(number, "key", explicit))
    drain(to)
    assert [seen_in(sent) for sent in taken(kinesis)] == [[0, 1], [2], [3]]


def test_records_that_go_by_themselves_after_a_contradiction_wait_for_a_shard_that_throttles() -> None:
    kinesis, clock = WritableKinesis(s=2), ManualClock()
    to = putter(kinesis, clock, max_bytes=50_000)
    add(to, 100)
    kinesis.reshard("s", 4)
    kinesis.lists_old_shards_only = True
    drain(to)
    calls = len(kinesis.calls)
    until = clock.monotonic() + 20
    kinesis.refuses = lambda _stream, shard, _: (
        THROTTLED if shard == "s-1-1" and clock.monotonic() < until else None
    )
    add_all(to, 1_000)
    assert clock.monotonic() >= until
    assert len(kinesis.calls) - calls < 200
    assert to.counts.taken == 1_100


def test_after_a_merge_nothing_is_put_again() -> None:
    kinesis = WritableKinesis(s=2)
    to = putter(kinesis, max_bytes=50_000)
    add(to, 100)
    kinesis.reshard("s", 1)
    drain(to)
    assert sorted(seen(kinesis)) == list(range(100))
    assert kinesis.listings == 2


def test_the_shards_are_listed_once_as_long_as_answers_name_those() -> None:
    kinesis = WritableKinesis(s=3)
    add_all(putter(kinesis, limits=CallLimits(records=3)), 2_000)
    assert kinesis.listings == 1


def test_what_waits_is_packed_anew_after_a_resharding() -> None:
    kinesis, numbers = WritableKinesis(s=1), count()
    to = putter(kinesis, limits=CallLimits(records=3))
    while not kinesis.calls:
        to.add(entry(next(numbers)))
    kinesis.reshard("s", 3)
    while len(kinesis.calls) < 2:  # a full call, packed for the old shard
        to.add(entry(next(numbers)))
    for _ in range(100):
        to.add(entry(next(numbers)))
    drain(to)
    packed_anew = [sent for call in kinesis.calls[2:] for sent in call]
    assert len(packed_anew) > 3
    for sent in packed_anew:
        assert {kinesis.shard_of("s", part.partition_key) for part in parts(sent)} == {sent.shard}
    assert seen_by_shard(kinesis) == list(range(next(numbers)))


def test_where_the_shards_may_not_be_listed_every_record_goes_by_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kinesis = WritableKinesis(s=2)
    kinesis.may_list = False
    add_all(putter(kinesis), 100)
    assert [sent.data for sent in taken(kinesis)] == [str(number).encode() for number in range(100)]
    assert "PutRecords on s: records are not aggregated, because the shards are not known" in caplog.text


def test_where_a_new_shard_cannot_be_listed_all_that_came_to_it_is_put_again_by_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kinesis = WritableKinesis(s=2)
    to = putter(kinesis, max_bytes=50_000)
    add(to, 100)
    kinesis.reshard("s", 4)
    kinesis.lists_old_shards_only = True  # eventually consistent
    drain(to)
    add_all(to, 10)
    kinesis.lists_old_shards_only = False
    assert len(kinesis.calls[0]) == 2
    assert all(take_apart(sent.data) is None for call in kinesis.calls[1:] for sent in call)
    assert set(range(100)) <= set(seen_by_shard(kinesis))
    assert to.counts.taken == 110
    assert "which the list of the shards does not explain" in caplog.text


def test_a_list_that_contradicts_the_answers_does_not_go_round_for_ever() -> None:
    class Contradicting(WritableKinesis):
        def put_records(self, **request: Any) -> dict[str, Any]:
            reply = super().put_records(**request)
            return {**reply, "Records": [{**each, "ShardId": "s-0-0"} for each in reply["Records"]]}

    kinesis = Contradicting(s=2)
    add_all(putter(kinesis, max_bytes=50_000), 100)
    assert len(kinesis.calls) == 2
    assert set(seen(kinesis)) == set(range(100))


@given(
    seed=st.integers(0, 2**32),
    keys=st.integers(1, 12),
    call=st.integers(1, 8),
    max_bytes=st.none() | st.integers(40, 400),
    refused_share=st.sampled_from([0.0, 0.0, 0.3, 0.9]),
)
def test_whatever_is_resharded_and_refused_a_consumer_of_single_shards_sees_every_record_once(
    seed: int, keys: int, call: int, max_bytes: int | None, refused_share: float
) -> None:
    chance, clock = random.Random(seed), ManualClock()
    kinesis = WritableKinesis(s=chance.randint(1, 5))
    kinesis.refuses = lambda *_: THROTTLED if chance.random() < refused_share else None
    limits = CallLimits(records=call)
    to = putter(kinesis, clock, limits=limits, max_bytes=max_bytes, deadline_seconds=1e9)
    missing: dict[str, list[bytes]] = defaultdict(list)
    for number in range(150):
        key = f"key-{chance.randrange(keys)}"
        missing[key].append(str(number).encode())
        to.add(entry(number, key))
        if chance.random() < 0.03:
            kinesis.reshard("s", chance.randint(1, 5))
        clock.advance(chance.random() / 10)
    drain(to)
    assert to.counts.taken == 150
    assert set(seen(kinesis)) == set(range(150))
    assert max_bytes or len(seen(kinesis)) == 150
    for sent in kinesis.calls:
        in_call: dict[str, list[bytes]] = defaultdict(list)
        for part in (part for record in sent for part in parts(record)):
            in_call[part.partition_key].append(part.data)
        for key, data in in_call.items():
            assert missing[key][: len(data)] == data  # the oldest that nobody saw yet, in their order
        for part in kept(kinesis, sent):
            missing[part.partition_key].remove(part.data)  # once
    assert not any(missing.values())


# Ordered by key


def test_ordered_by_key_the_rows_of_one_key_ride_in_one_aggregate_and_the_next_waits_for_it() -> None:
    kinesis = WritableKinesis(s=1)
    to = putter(kinesis, order=PutOrder.KEY)
    for number in range(100):
        to.add(entry(number, "same"))
    drain(to)
    assert [len(call) for call in kinesis.calls] == [1] * len(kinesis.calls)
    assert 1 < len(kinesis.calls) < 10
    assert seen(kinesis) == list(range(100))


def test_ordered_by_key_aggregates_of_different_shards_go_in_one_call() -> None:
    kinesis = WritableKinesis(s=4)
    to = putter(kinesis, order=PutOrder.KEY, max_bytes=50_000)
    for number in range(1_000):
        to.add(entry(number, f"key-{number % 100}"))
    drain(to)
    assert [len(call) for call in kinesis.calls] == [4]


@given(
    seed=st.integers(0, 2**32),
    keys=st.integers(1, 12),
    call=st.integers(1, 8),
    max_bytes=st.none() | st.integers(40, 400),
    refused_share=st.sampled_from([0.0, 0.0, 0.3, 0.9]),
    lost_share=st.sampled_from([0.0, 0.0, 0.3]),
    may_list=st.sampled_from([True, True, False]),
)
def test_ordered_by_key_whatever_is_refused_or_resharded_the_records_of_a_key_are_seen_in_their_order(
    *,
    seed: int,
    keys: int,
    call: int,
    max_bytes: int | None,
    refused_share: float,
    lost_share: float,
    may_list: bool,
) -> None:
    chance, clock = random.Random(seed), ManualClock()
    kinesis = WritableKinesis(s=chance.randint(1, 5))
    kinesis.may_list = may_list
    kinesis.refuses = lambda *_: THROTTLED if chance.random() < refused_share else None

    def lose() -> None:
        if chance.random() < lost_share:
            raise EndpointConnectionError(endpoint_url="memory:")

    kinesis.after_call = lose
    limits = CallLimits(records=call)
    to = putter(kinesis, clock, order=PutOrder.KEY, limits=limits, max_bytes=max_bytes, deadline_seconds=1e9)
    added: dict[str, list[int]] = defaultdict(list)
    for number in range(150):
        key = f"key-{chance.randrange(keys)}"
        added[key].append(number)
        to.add(entry(number, key))
        if chance.random() < 0.03:
            kinesis.reshard("s", chance.randint(1, 5))
        clock.advance(chance.random() / 10)
    drain(to)
    by_itself = (part for sent in taken(kinesis) for part in parts(sent))
    for parts_seen in (by_itself, kept(kinesis, chain.from_iterable(kinesis.calls))):
        first_seen: dict[str, dict[int, None]] = defaultdict(dict)
        for part in parts_seen:
            first_seen[part.partition_key][int(part.data)] = None  # a resharding makes copies
        assert {key: list(numbers) for key, numbers in first_seen.items()} == added
    if max_bytes is None:
        on_stream: dict[str, list[int]] = defaultdict(list)
        for sent in taken(kinesis):
            on_stream[sent.key] += seen_in(sent)
        assert all(numbers == sorted(numbers) for numbers in on_stream.values()), "copies are neighbours"


def test_a_record_of_a_quiet_shard_is_not_passed_over_for_ever_for_full_aggregates_of_others() -> None:
    kinesis = WritableKinesis(s=2)
    to = putter(kinesis, limits=CallLimits(size_bytes=5_000), max_bytes=1_000)
    to.add(Entry("quiet", b"-1", "0"))
    for number in range(10_000):
        to.add(entry(number, "busy", str(1 << 127)))
    assert -1 in seen(kinesis)
