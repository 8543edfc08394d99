"""Threads that need a write at the same time share one."""

import signal
import threading
import time
from collections.abc import Sequence

import pytest

from kinesis_spout.model.errors import SpoolError
from kinesis_spout.producer.spool.shared_writes import SharedWrites


class Disk:
    """Writes when it is told to."""

    def __init__(self) -> None:
        self.writes: list[list[int]] = []
        self.begun = threading.Semaphore(0)
        self.goes_on = threading.Semaphore(0)
        self.failure: BaseException | None = None

    def write(self, numbers: Sequence[int]) -> None:
        self.begun.release()
        assert self.goes_on.acquire(timeout=60)
        self.writes.append(list(numbers))
        if self.failure is not None:
            raise self.failure


def waiting(shared: SharedWrites, numbers: Sequence[int]) -> tuple[list[threading.Thread], list[SpoolError]]:
    """Let a thread wait for each number, in this order."""
    errors: list[SpoolError] = []

    def wait_for(number: int) -> None:
        try:
            shared.wait_for(number)
        except SpoolError as error:
            errors.append(error)

    threads = [threading.Thread(target=wait_for, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 60
    while len(shared._next.numbers) < len(numbers) and time.monotonic() < deadline:
        threading.Event().wait(0.001)
    return threads, errors


def begun(disk: Disk, shared: SharedWrites) -> threading.Thread:
    thread = threading.Thread(target=shared.wait_for, args=(1,))
    thread.start()
    assert disk.begun.acquire(timeout=60)
    return thread


def test_all_that_come_while_one_writes_share_the_next_write() -> None:
    disk = Disk()
    shared = SharedWrites(disk.write)
    first = begun(disk, shared)
    others, errors = waiting(shared, range(2, 30))
    disk.goes_on.release(2)
    for thread in (first, *others):
        thread.join(60)
    assert [sorted(write) for write in disk.writes] == [[1], list(range(2, 30))]
    assert errors == []


def test_a_write_that_fails_is_an_error_of_all_that_waited_for_it_and_of_no_other() -> None:
    disk = Disk()
    shared = SharedWrites(disk.write)
    first = begun(disk, shared)
    others, errors = waiting(shared, range(2, 10))
    disk.goes_on.release()
    assert disk.begun.acquire(timeout=60)
    disk.failure = SpoolError("the disk is full")
    disk.goes_on.release()
    for thread in (first, *others):
        thread.join(60)
    assert [str(error) for error in errors] == ["the disk is full"] * 8
    disk.failure = None
    disk.goes_on.release()
    shared.wait_for(10)
    assert disk.writes[-1] == [10]


def test_ctrl_c_in_the_thread_that_is_next_leaves_nobody_waiting_for_ever() -> None:
    disk = Disk()
    shared = SharedWrites(disk.write)
    first = begun(disk, shared)
    others: list[threading.Thread] = []

    def interrupts() -> None:
        deadline = time.monotonic() + 60
        while not shared._next.numbers and time.monotonic() < deadline:
            threading.Event().wait(0.001)
        others.extend(waiting_after_the_first())
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        disk.goes_on.release(2)

    def waiting_after_the_first() -> list[threading.Thread]:
        threads = [threading.Thread(target=shared.wait_for, args=(number,)) for number in (3, 4)]
        for thread in threads:
            thread.start()
        return threads

    interrupter = threading.Thread(target=interrupts)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        shared.wait_for(2)
    interrupter.join(60)
    disk.goes_on.release(2)
    for thread in (first, *others):
        thread.join(60)
        assert not thread.is_alive()
    assert sorted(number for write in disk.writes for number in write) == [1, 2, 3, 4]
