"""Pages in memory that other processes can map; it is used again once nobody can see what is in it."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from kinesis_spout import shared_memory
from kinesis_spout.shared_memory import SharedMemory, SharedMemoryPool
from kinesis_spout.testing import ManualClock

MIB = 1024 * 1024
PLENTY = 100 * MIB
EACH = 2
"""Descriptors: a mapping has one of its own."""


def filled(letter: str, kib: int = 1024) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"data": [letter.encode() * 1024] * kib, "name": [letter] * kib})


def letters(batch: pa.RecordBatch) -> set[str]:
    assert set(batch.column("data").to_pylist()) == {
        name.encode() * 1024 for name in batch["name"].to_pylist()
    }
    return set(batch["name"].to_pylist())


@pytest.fixture(autouse=True)
def _nothing_of_other_tests() -> Iterator[None]:
    gc.collect()
    yield
    gc.collect()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def pool(clock: ManualClock) -> SharedMemoryPool:
    return SharedMemoryPool(max_bytes=PLENTY, clock=clock)


def copied(pool: SharedMemoryPool, batch: pa.RecordBatch) -> SharedMemory:
    memory = pool.copy(batch)
    assert memory is not None
    return memory


def inode(memory: SharedMemory) -> int:
    return os.fstat(memory.descriptor).st_ino


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def test_the_batch_is_the_same_for_who_made_it_and_for_who_maps_it(pool: SharedMemoryPool) -> None:
    memory = copied(pool, filled("a"))
    elsewhere = SharedMemory.received(os.dup(memory.descriptor), memory.size)

    assert memory.batch().equals(filled("a"))
    assert elsewhere.batch(will_read_all=True).equals(filled("a"))


def test_a_small_page_is_not_worth_it(pool: SharedMemoryPool) -> None:
    assert pool.copy(filled("a").slice(0, 10)) is None


def test_what_nobody_refers_to_is_used_again(pool: SharedMemoryPool) -> None:
    first = copied(pool, filled("a"))
    used = inode(first)
    del first

    assert inode(copied(pool, filled("b"))) == used


def test_what_somebody_refers_to_is_not_even_by_a_part_of_an_array(pool: SharedMemoryPool) -> None:
    first = copied(pool, filled("a"))
    used, part = inode(first), first.batch().slice(3, 5).column("data")
    del first
    second = copied(pool, filled("b"))

    assert inode(second) != used
    assert set(part.to_pylist()) == {b"a" * 1024}
    del part
    assert inode(copied(pool, filled("c"))) == used


def test_what_was_given_away_is_never_written_again(pool: SharedMemoryPool) -> None:
    first = copied(pool, filled("a"))
    elsewhere = SharedMemory.received(os.dup(first.descriptor), first.size)
    first.give_away()
    used = inode(first)
    del first
    for letter in "bcd":
        assert inode(copied(pool, filled(letter))) != used

    assert letters(elsewhere.batch()) == {"a"}


def test_a_page_goes_where_it_fits_best(pool: SharedMemoryPool) -> None:
    large, small = copied(pool, filled("a", 5_000)), copied(pool, filled("b", 1_500))
    used = inode(small)
    del large, small

    assert inode(copied(pool, filled("c", 1_000))) == used


def test_there_is_no_more_than_may_be_as_long_as_some_is_free(clock: ManualClock) -> None:
    pool = SharedMemoryPool(max_bytes=5 * MIB, clock=clock)
    kept = [copied(pool, filled(letter, 1_500)) for letter in "ab"]  # 2 MiB each
    files = open_files()
    del kept
    large = copied(pool, filled("c", 4_500))
    assert open_files() < files
    # In use it may be more; what comes back then is not kept.
    more = [copied(pool, filled(letter, 1_500)) for letter in "de"]
    files = open_files()
    del more
    pool.trim()
    assert open_files() == files - 2 * EACH
    assert letters(large.batch()) == {"c"}


def test_what_was_not_used_for_a_minute_is_given_back_to_the_system(
    pool: SharedMemoryPool, clock: ManualClock
) -> None:
    before = open_files()
    memory = copied(pool, filled("a"))
    clock.advance(100)
    del memory
    assert pool.copy(filled("a").slice(0, 1)) is None
    clock.advance(59)
    pool.trim()
    assert open_files() == before + EACH
    clock.advance(2)
    pool.trim()
    assert open_files() == before


def test_with_the_pool_goes_all_that_is_free_and_what_is_used_stays(clock: ManualClock) -> None:
    before = open_files()
    pool = SharedMemoryPool(max_bytes=PLENTY, clock=clock)
    kept, other = copied(pool, filled("a")), copied(pool, filled("b"))
    batch = kept.batch()
    del kept, other, pool

    assert open_files() == before + EACH
    assert letters(batch) == {"a"}
    del batch
    assert open_files() == before


def test_only_so_many_pages_take_descriptors(pool: SharedMemoryPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "_MOST_PAGES", len(shared_memory._living) + 2)
    kept = [pool.copy(filled("a")) for _ in range(3)]
    assert [memory is not None for memory in kept] == [True, True, False]
    del kept

    assert pool.copy(filled("a", 3_000)) is not None  # in the place of a smaller one


def test_without_memory_the_page_stays_where_it_is(
    pool: SharedMemoryPool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: object) -> int:
        raise OSError("no space left")

    before = open_files()
    monkeypatch.setattr(os, "posix_fallocate", refused)
    assert pool.copy(filled("a")) is None
    monkeypatch.setattr(os, "memfd_create", refused)
    assert pool.copy(filled("a")) is None
    assert "so its bytes are sent: OSError('no space left')" in caplog.text
    assert open_files() == before


def test_a_page_that_cannot_be_written_stays_where_it_is(
    pool: SharedMemoryPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_memory, "_STREAM_BYTES", -MIB)  # as if Arrow wrote more than it says
    assert pool.copy(filled("a")) is None


def test_a_system_without_it_is_none(pool: SharedMemoryPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    assert pool.copy(filled("a")) is None
