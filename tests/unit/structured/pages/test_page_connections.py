"""How many connections the page server has, how long they may say nothing, and which of them goes for another."""

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kinesis_spout.model.columns import SCHEMA
from kinesis_spout.processes import keyed_connections
from kinesis_spout.structured.pages import page_channel, page_server
from kinesis_spout.structured.pages.page_buffer import PageBuffer, PageSegment, StoredPage
from kinesis_spout.structured.pages.page_channel import PageChannel, fetch_segments
from kinesis_spout.structured.pages.page_server import ConnectionSlots, PageServer
from tests.support.waiting import wait_until
from tests.unit.structured.pages.pages import page_of, sequences_of

MANY = 300


@pytest.fixture
def buffer() -> PageBuffer:
    buffer = PageBuffer()
    buffer.append(("orders", "a"), page_of(range(10)), data_bytes=100)
    return buffer


@pytest.fixture
def served() -> Iterator[ExitStack]:
    """Closes servers and connections at the end, and the connections that this process keeps."""
    with ExitStack() as stack:
        stack.callback(page_channel._connections.forget)
        yield stack


def started(served: ExitStack, buffer: PageBuffer, **settings: int) -> PageServer:
    server = PageServer("127.0.0.1", buffer.page, **settings)
    served.callback(server.close)
    return server


def fetched(server: PageServer, *segments: PageSegment) -> list[list[int]]:
    batches = fetch_segments(server.address, segments, SCHEMA, rows_at_once=10)
    return [sequences_of(batch) for batch in batches]


def stranger(served: ExitStack, server: PageServer) -> socket.socket:
    where = (server.address.host, server.address.port)
    return served.enter_context(socket.create_connection(where, timeout=30))


def worker(served: ExitStack, server: PageServer) -> PageChannel:
    """Connect as a worker of its own, and have a page."""
    channel = PageChannel.connected(server.address, wait_seconds=30)
    served.callback(channel.close)
    channel.ask([PageSegment(0, 0, 1)], 1)
    assert channel.receive_buffer().size
    return channel


def threads() -> int:
    return sum(thread.name == "kinesis-page-client" for thread in threading.enumerate())


def has_ended(connected: socket.socket) -> bool:
    try:
        return connected.recv(1000) == b""
    except ConnectionError:
        return True


def test_however_many_connect_it_has_a_bounded_number_of_threads_and_tasks_get_their_pages(
    served: ExitStack, buffer: PageBuffer
) -> None:
    before = threads()
    server = started(served, buffer)
    most = 0
    for _ in range(MANY):
        stranger(served, server)
        most = max(most, threads() - before)
    assert fetched(server, PageSegment(0, 0, 2)) == [[0, 1]]
    assert max(most, threads() - before) <= page_server.MAX_CONNECTIONS < MANY


def test_a_stranger_who_says_nothing_is_sent_away(
    served: ExitStack, buffer: PageBuffer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_connections, "HANDSHAKE_SECONDS", 0.1)
    assert has_ended(stranger(served, started(served, buffer)))


def test_who_announces_an_endless_request_is_sent_away(served: ExitStack, buffer: PageBuffer) -> None:
    server = started(served, buffer)
    knows_the_key = worker(served, server)
    knows_the_key._socket.sendall(b"\xff" * 8)
    assert has_ended(knows_the_key._socket)


def test_a_worker_without_requests_loses_its_connection_and_gets_its_next_pages_on_another(
    served: ExitStack, buffer: PageBuffer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(
        page_server, "IDLE_SECONDS", 0.5
    )  # a busy machine asks for its page later than at once
    server = started(served, buffer)
    for row in range(3):
        assert fetched(server, PageSegment(0, row, 1)) == [[row]]
        wait_until(lambda: not server._slots._taken, "the server to end the connection")
    assert [record for record in caplog.records if record.name == page_channel.__name__] == []


def test_a_stranger_is_ended_for_a_task(served: ExitStack, buffer: PageBuffer) -> None:
    server = started(served, buffer, max_connections=1)
    silent = stranger(served, server)
    # It came by another socket than a task does, whose turn may be before.
    wait_until(lambda: bool(server._slots._taken), "the stranger to have its place")
    assert fetched(server, PageSegment(0, 0, 1)) == [[0]]
    assert has_ended(silent)


def test_where_all_are_at_work_further_tasks_read_kinesis_which_is_said_once(
    served: ExitStack, buffer: PageBuffer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(page_server, "_PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(page_channel, "_FORGIVE_AFTER_SECONDS", 0.0)
    at_work, may_go_on = threading.Event(), threading.Event()
    served.callback(may_go_on.set)

    def find(number: int) -> StoredPage | None:
        at_work.set()
        may_go_on.wait()
        return buffer.page(number)

    server = PageServer("127.0.0.1", find, max_connections=1)
    served.callback(server.close)
    busy = PageChannel.connected(server.address, wait_seconds=30)
    served.callback(busy.close)
    busy.ask([PageSegment(0, 0, 1)], 1)
    at_work.wait()
    with caplog.at_level(logging.WARNING):
        assert [fetched(server, PageSegment(0, 0, 1)) for _ in range(3)] == [[], [], []]
    assert len([record for record in caplog.records if "which is the most it serves" in record.message]) == 1
    may_go_on.set()
    assert busy.receive_buffer().size
    wait_until(lambda: fetched(server, PageSegment(0, 0, 1)) == [[0]], "the one that is done to make room")


# Which one goes


Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def connections(served: ExitStack) -> list[Ends]:
    """The server's end and the other one of three connections."""
    pairs = [socket.socketpair() for _ in range(3)]
    for pair in pairs:
        for end in pair:
            served.enter_context(end)
    return pairs


def is_ended(connection: Ends) -> bool:
    connection[1].setblocking(False)
    try:
        return connection[1].recv(1) == b""
    except BlockingIOError:
        return False


def test_the_connection_that_waits_longest_is_ended_and_only_that_one(connections: list[Ends]) -> None:
    first, second, new = connections
    slots = ConnectionSlots(2)
    assert slots.take(first[0], 0)
    assert slots.take(second[0], 0)
    with slots.waiting(first[0]):
        assert not slots.take(new[0], 0)
        assert not slots.take(new[0], 0)
        assert [is_ended(each) for each in connections] == [False, True, False]
        slots.leave(second[0])
        assert slots.take(new[0], 0)


def test_a_connection_at_work_is_not_ended(connections: list[Ends]) -> None:
    at_work, new, _ = connections
    slots = ConnectionSlots(1)
    assert slots.take(at_work[0], 0)
    with slots.waiting(at_work[0]):
        pass
    assert not slots.take(new[0], 0)
    assert not is_ended(at_work)
    slots.leave(at_work[0])
    assert slots.take(new[0], 0)
