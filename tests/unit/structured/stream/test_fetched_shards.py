"""How late the records that were read ahead are, which decides on how long they wait for more."""

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kinesis_spout.kinesis import Prefetcher
from kinesis_spout.settings.source_options import StreamReadOptions
from kinesis_spout.structured.stream.fetched_shards import FetchedShards
from kinesis_spout.testing import ManualClock
from shard_state import SequenceNumber
from tests.unit.structured.pages.pages import page_of


class Reading:
    """Shards that are being read, as far as the question goes."""

    def __init__(self, prefetcher: Prefetcher) -> None:
        self.clock = ManualClock()
        self.fetched = FetchedShards(
            StreamReadOptions.of({"streamName": "orders", "region": "us-east-1"}),
            client=cast("Any", None),
            prefetcher=prefetcher,
            shards_of=cast("Any", None),
            changed=threading.Condition(),
            until=None,
            clock=self.clock,
        )

    def shard(self, name: str, *, behind: int | None, records: int = 0, **more: Any) -> None:
        state = {"millis_behind_latest": behind, "at_end": False, "has_all_until": False} | more
        fetcher = cast("Any", FakeFetcher(**state))
        self.fetched._fetchers["orders", name] = fetcher
        if records:
            self.fetched.buffer.append(("orders", name), page_of(range(records)), data_bytes=1)
        if state.get("waits_for_room"):
            self.fetched.room.parked.append(fetcher)


class FakeFetcher(SimpleNamespace):
    """What a fetcher says of its shard."""

    __hash__ = object.__hash__  # type: ignore[assignment]


@pytest.fixture
def reading() -> Iterator[Reading]:
    with Prefetcher(most=1) as prefetcher:
        yield Reading(prefetcher)


def test_the_freshest_records_decide(reading: Reading) -> None:
    reading.shard("a", behind=60_000, records=1)
    reading.shard("b", behind=5_000, records=1)
    assert reading.fetched.late_seconds() == 5


def test_shards_without_records_do_not(reading: Reading) -> None:
    reading.shard("a", behind=60_000, records=1)
    reading.shard("idle", behind=0)
    reading.shard("not read yet", behind=None)
    assert reading.fetched.late_seconds() == 60


def test_records_of_a_shard_at_its_tip_are_not_late(reading: Reading) -> None:
    reading.shard("a", behind=60_000, records=1)
    reading.shard("b", behind=0, records=1)
    assert reading.fetched.late_seconds() == 0


def test_nothing_is_late_when_every_shard_that_has_more_waits_for_room(reading: Reading) -> None:
    reading.shard("a", behind=60_000, records=1, waits_for_room=True)
    reading.shard("idle", behind=0)
    assert reading.fetched.late_seconds() == 0
    reading.shard("b", behind=60_000)
    assert reading.fetched.late_seconds() == 60


def test_nothing_is_late_when_children_wait(reading: Reading) -> None:
    reading.shard("a", behind=60_000, records=1)
    reading.shard("parent", behind=0, at_end=True)
    assert reading.fetched.late_seconds() == 0


def test_what_is_through_does_not_count(reading: Reading) -> None:
    reading.shard("a", behind=60_000, records=1)
    reading.shard("b", behind=100, records=1, has_all_until=True)
    assert reading.fetched.late_seconds() == 60


def test_a_shard_is_as_far_behind_as_the_oldest_of_its_records_that_are_not_done(reading: Reading) -> None:
    reading.shard("a", behind=0)
    reading.shard("b", behind=7_000)
    reading.shard("not read yet", behind=None)
    now = reading.clock.time()
    page = page_of(range(3), arrival=lambda number: now - 3600 + number)
    reading.fetched.buffer.append(("orders", "a"), page, data_bytes=1)
    assert reading.fetched.behind() == [3_600_000, 7_000]
    reading.fetched._freed["orders", "a"] = SequenceNumber(1)
    assert reading.fetched.behind() == [3_598_000, 7_000]
    reading.clock.advance(10)
    assert reading.fetched.behind() == [3_608_000, 7_000]
