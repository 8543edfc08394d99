import gc
import logging
import multiprocessing
import os
import pickle
import random
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from kinesis_spout import shared_memory
from kinesis_spout.kinesis.arrow import SCHEMA
from kinesis_spout.shared_memory import SharedMemoryPool
from kinesis_spout.structured import page_channel, page_client
from kinesis_spout.structured.page_buffer import PageBuffer, Segment
from kinesis_spout.structured.page_channel import PageServerAddress
from kinesis_spout.structured.page_client import fetch_segments
from kinesis_spout.structured.page_server import PageServer
from kinesis_spout.testing import ManualClock
from tests.kinesis_endpoints import REPOSITORY, wait_until
from tests.unit.structured.pages import page_of, sequences_of

STEP = 4
"""Rows that are sent at once."""


WIDE = 100_000
"""The data of a record of which ten are a page that is worth sharing."""


class Pages:
    """Three pages of ten records; the last one is where other processes can map it."""

    def __init__(self) -> None:
        self.buffer = PageBuffer()
        for start in (0, 10):
            self.buffer.append(("orders", "a"), page_of(range(start, start + 10)), data_bytes=100)
        self.pool = SharedMemoryPool(max_bytes=100 * WIDE * 10, clock=ManualClock())
        self.append_shared(range(20, 30))

    def append_shared(self, sequences: Iterable[int]) -> int:
        """Append a page, and tell which memory it is in."""
        memory = self.pool.copy(page_of(sequences, width=WIDE))
        assert memory is not None, "expected a system that can do it (Linux)"
        self.buffer.append(("orders", "a"), memory.batch(), data_bytes=100, memory=memory)
        return os.fstat(memory.descriptor).st_ino


@pytest.fixture(params=["on this machine", "over the network"])
def server(request: pytest.FixtureRequest) -> Iterator[PageServer]:
    served = PageServer("127.0.0.1", Pages().buffer.page)
    if request.param == "over the network":
        served.address = replace(served.address, local=None)
    else:
        assert served.address.local is not None, "expected a system that can do it (Linux)"
    yield served
    page_client._connections.forget()
    served.close()


def fetched(server: PageServer, *segments: Segment) -> list[list[int]]:
    batches = fetch_segments(server.address, segments, SCHEMA, rows_at_once=STEP)
    return [sequences_of(batch) for batch in batches]


def test_segments_come_whole_and_in_their_order(server: PageServer) -> None:
    assert fetched(server, Segment(1, 8, 2), Segment(2, 0, 3)) == [[18, 19], [20, 21, 22]]


def test_pages_come_in_pieces_over_the_network_and_whole_as_memory(server: PageServer) -> None:
    pieces = [[20, 21, 22, 23], [24, 25, 26, 27], [28, 29]]

    assert fetched(server, Segment(0, 0, 6)) == [[0, 1, 2, 3], [4, 5]]
    assert fetched(server, Segment(2, 0, 10)) == (
        pieces if server.address.local is None else [list(range(20, 30))]
    )


def test_memory_that_was_passed_on_outlives_the_page_and_the_server() -> None:
    pages = Pages()
    served = PageServer("127.0.0.1", pages.buffer.page)
    (batch,) = fetch_segments(served.address, [Segment(2, 1, 2)], SCHEMA, rows_at_once=STEP)
    pages.buffer.drop_shard(("orders", "a"))
    page_client._connections.forget()
    served.close()
    gc.collect()

    assert sequences_of(batch) == [21, 22]


class Lending:
    """A server of pages that are lent, and a task's worker on the same machine."""

    def __init__(self) -> None:
        gc.collect()
        self.before = len(shared_memory._living)
        self.pages = Pages()
        self.server = PageServer("127.0.0.1", self.pages.buffer.page)
        self.used = {self.pages.append_shared(range(start, start + 10)) for start in (30, 40)}

    def fetch(self, *pages: int) -> list[pa.RecordBatch]:
        segments = [Segment(page, 0, 10) for page in pages]
        return list(fetch_segments(self.server.address, segments, SCHEMA, rows_at_once=STEP))

    def uses_again(self) -> bool:
        """Free all pages, and tell whether new ones go where one of those two was."""
        self.pages.buffer.drop_shard(("orders", "a"))
        return not self.used.isdisjoint(
            {self.pages.append_shared(range(start, start + 10)) for start in range(50, 90, 10)}
        )


@pytest.fixture
def lending() -> Iterator[Lending]:
    lending = Lending()
    yield lending
    page_client._connections.forget()
    lending.server.close()


def test_memory_that_a_task_has_is_not_written_again(lending: Lending) -> None:
    batches = lending.fetch(3, 4)
    assert not lending.uses_again()
    lending.fetch(0)
    assert not lending.uses_again()
    assert [sequences_of(batch)[0] for batch in batches] == [30, 40]
    assert {len(data) for batch in batches for data in batch.column("data").to_pylist()} == {WIDE}


def test_a_part_of_a_column_keeps_it_too(lending: Lending) -> None:
    part = lending.fetch(3, 4)[1].slice(2, 1).column("data")
    for _ in range(3):
        lending.fetch(0)
        lending.uses_again()
    assert part.to_pylist() == [b"42".zfill(WIDE)]


def test_memory_that_a_task_has_released_is_used_again_after_its_next_request(lending: Lending) -> None:
    lending.fetch(3, 4)
    lending.fetch(0)
    assert lending.uses_again()


def test_what_is_released_while_a_request_is_answered_is_said_at_its_end(lending: Lending) -> None:
    for batch in fetch_segments(
        lending.server.address, [Segment(page, 0, 10) for page in (3, 4, 0)], SCHEMA, rows_at_once=10
    ):
        last = batch
    assert sequences_of(last)[0] == 0
    deadline = time.monotonic() + 10
    while not lending.uses_again():
        assert time.monotonic() < deadline, "expected the server to be told"


def test_memory_of_a_task_that_asks_for_nothing_more_is_not_kept(
    lending: Lending, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_channel, "_LENT_SECONDS", 0.05)
    batches = lending.fetch(3, 4)
    lending.pages.buffer.drop_shard(("orders", "a"))

    def is_let_go() -> bool:
        lending.pages.pool.trim()
        # What is free, which is the page that was not lent, and the task's own two.
        return len(shared_memory._living) - lending.before <= 1 + 2

    wait_until(is_let_go, "the server to let it go")
    assert [sequences_of(batch)[0] for batch in batches] == [30, 40]
    batches.clear()
    assert not lending.uses_again()
    assert [sequences_of(batch)[0] for batch in lending.fetch(5)] == [50]  # on the same connection


def test_memory_of_a_task_that_went_away_is_not_written_again(lending: Lending) -> None:
    lending.fetch(3, 4)
    page_client._connections.forget()
    lending.fetch(0)
    wait_until(
        lambda: threads("kinesis-page-client") == 1, "the server to note that the first connection ended"
    )
    assert not lending.uses_again()


class Task:
    """A worker in a process of its own; see ``page_task``."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.structured.page_task", str(WIDE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )

    def fetch(self, address: PageServerAddress, *segments: Segment) -> str:
        self.tell(pickle.dumps((address, segments)).hex())
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


def test_whatever_tasks_keep_and_whenever_they_end_no_page_changes_under_them() -> None:
    chance, lending = random.Random(1), Lending()
    tasks = [Task() for _ in range(3)]
    used: list[int] = []
    try:
        for round_ in range(60):
            first = 1_000 * round_
            used += [lending.pages.append_shared(range(first + at, first + at + 10)) for at in (0, 10, 20)]
            last = 3 * round_ + 7  # five pages were there before
            wanted = [Segment(page, chance.randrange(5), 5) for page in range(last - 2, last + 1)]
            asked = chance.sample(tasks, chance.choice([1, 1, 2]))
            assert [task.fetch(lending.server.address, *wanted) for task in asked] == ["good"] * len(asked)
            if chance.random() < 0.1:
                asked[0].tell("")
            if chance.random() < 0.1:
                asked[0].kill()
                tasks[tasks.index(asked[0])] = Task()
            lending.pages.buffer.drop_shard(("orders", "a"))
    finally:
        for task in tasks:
            task.kill()
        lending.server.close()
    assert len(set(used)) < len(used) / 2  # it was used again


def test_a_machine_that_does_not_know_the_local_name_uses_the_network(server: PageServer) -> None:
    elsewhere = replace(server.address, local="of another machine")
    batches = fetch_segments(elsewhere, [Segment(2, 0, 1)], SCHEMA, rows_at_once=STEP)
    assert [sequences_of(batch) for batch in batches] == [[20]]


NO_NAME = "x" * 200
"""Too long for a Unix socket: stands for a system that allows none."""


def test_where_no_local_name_can_be_used_the_network_is(server: PageServer) -> None:
    batches = fetch_segments(
        replace(server.address, local=NO_NAME), [Segment(2, 0, 1)], SCHEMA, rows_at_once=STEP
    )
    assert [sequences_of(batch) for batch in batches] == [[20]]


def test_where_no_local_name_can_be_had_the_network_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda: NO_NAME)
    served = PageServer("127.0.0.1", Pages().buffer.page)
    assert served.address.local is None
    assert fetched(served, Segment(2, 0, 1)) == [[20]]
    page_client._connections.forget()
    served.close()


def test_a_connection_serves_many_tasks(server: PageServer) -> None:
    for row in range(10):
        assert fetched(server, Segment(0, row, 1)) == [[row]]


def test_it_ends_where_a_page_is_gone(server: PageServer) -> None:
    assert fetched(server, Segment(0, 0, 1), Segment(7, 0, 1), Segment(1, 0, 1)) == [[0]]
    assert fetched(server, Segment(1, 0, 1)) == [[10]]


def test_a_task_that_gives_up_in_the_middle_disturbs_no_other(server: PageServer) -> None:
    abandoned = fetch_segments(server.address, [Segment(0, 0, 5), Segment(1, 0, 5)], SCHEMA, rows_at_once=9)
    assert sequences_of(next(abandoned)) == [0, 1, 2, 3, 4]
    abandoned.close()
    assert fetched(server, Segment(2, 0, 1)) == [[20]]


def test_who_does_not_know_the_key_gets_nothing(server: PageServer, caplog: pytest.LogCaptureFixture) -> None:
    stranger = replace(server.address, key=b"guessed")
    with caplog.at_level(logging.ERROR):
        assert list(fetch_segments(stranger, [Segment(0, 0, 1)], SCHEMA, rows_at_once=STEP)) == []
    assert fetched(server, Segment(0, 0, 1)) == [[0]]


def test_a_server_that_is_not_there_is_asked_once_only(caplog: pytest.LogCaptureFixture) -> None:
    gone = PageServer("127.0.0.1", Pages().buffer.page)
    gone.close()
    for _ in range(3):
        assert list(fetch_segments(gone.address, [Segment(0, 0, 1)], SCHEMA, rows_at_once=STEP)) == []
    assert len([record for record in caplog.records if "cannot be reached" in record.message]) == 1


def test_the_key_is_not_in_the_text_of_an_address(server: PageServer) -> None:
    assert repr(server.address.key) not in repr(server.address)


def test_what_a_stranger_sends_ends_no_service(server: PageServer) -> None:
    where = (server.address.host, server.address.port)
    for said in (b"GET / HTTP/1.0\r\n\r\n", b"\x00\x00\x00\x02ab", b"\xff\xff\xff\xff", b""):
        with socket.create_connection(where) as stranger:
            stranger.sendall(said)
        assert fetched(server, Segment(0, 0, 1)) == [[0]]
        page_client._connections.forget()


def test_a_stranger_who_says_nothing_keeps_nobody_waiting(server: PageServer) -> None:
    where = (server.address.host, server.address.port)
    with socket.create_connection(where), socket.create_connection(where):
        assert fetched(server, Segment(0, 0, 1)) == [[0]]


def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_channel, "HANDSHAKE_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = PageServerAddress(host="127.0.0.1", port=mute.getsockname()[1], key=b"key")
        assert list(fetch_segments(address, [Segment(0, 0, 1)], SCHEMA, rows_at_once=STEP)) == []


def test_a_closed_server_takes_nobody(server: PageServer) -> None:
    assert fetched(server, Segment(0, 0, 1)) == [[0]]
    page_client._connections.forget()
    server.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((server.address.host, server.address.port)).close()


def test_a_worker_that_outlives_many_queries_keeps_few_connections() -> None:
    page_client._connections.forget()
    before = open_files()
    for _ in range(40):
        served = PageServer("127.0.0.1", Pages().buffer.page)
        assert fetched(served, Segment(0, 0, 1)) == [[0]]
        served.close()
    # Both ends are in this process, and so are the pages of those whose servers still serve, with a descriptor
    # and a mapping in each. The last one's other end may be about to close.
    assert open_files() - before <= 4 * page_client._KEPT_CONNECTIONS + 8
    page_client._connections.forget()


def test_a_forked_child_does_not_ask_on_its_parents_connection(server: PageServer) -> None:
    assert fetched(server, Segment(0, 0, 1)) == [[0]]
    assert page_client._connections._idle
    context = multiprocessing.get_context("fork")
    answers, answer = context.Pipe(duplex=False)
    child = context.Process(target=lambda: answer.send(len(page_client._connections._idle)))
    child.start()
    child.join()
    assert answers.recv() == 0
    assert fetched(server, Segment(0, 1, 1)) == [[1]]


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def threads(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())
