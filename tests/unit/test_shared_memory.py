"""Pages in memory that other processes can map."""

import gc
import os
from pathlib import Path

import pyarrow as pa
import pytest

from kinesis_spout import shared_memory
from kinesis_spout.shared_memory import SharedMemory, shared

LARGE = pa.RecordBatch.from_pydict({"data": [b"x" * 1024] * 1024})


def test_the_batch_is_the_same() -> None:
    memory = shared(LARGE)

    assert memory is not None
    assert memory.batch().equals(LARGE)


def test_a_small_page_is_not_worth_it() -> None:
    assert shared(LARGE.slice(0, 10)) is None


def test_descriptors_are_given_back_and_the_batch_stays() -> None:
    gc.collect()
    before = open_files()
    memory = SharedMemory.of(LARGE)
    batch = memory.batch()
    del memory
    assert batch.equals(LARGE)
    del batch

    assert open_files() == before


def test_only_so_many_pages_take_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    monkeypatch.setattr(shared_memory, "_MOST_PAGES", 2)
    kept = [shared(LARGE) for _ in range(3)]
    assert [memory is not None for memory in kept] == [True, True, False]
    del kept

    assert shared(LARGE) is not None


def test_without_descriptors_the_page_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_name: str, _flags: int) -> int:
        raise OSError("too many open files")

    monkeypatch.setattr(os, "memfd_create", refused)
    assert shared(LARGE) is None


def test_a_system_without_it_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    assert shared(LARGE) is None


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))
