import logging
import multiprocessing
import secrets
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kinesis_spout.model.columns import SCHEMA
from kinesis_spout.processes import keyed_connections
from kinesis_spout.structured.pages import page_channel, page_server
from kinesis_spout.structured.pages.page_buffer import PageBuffer, PageSegment
from kinesis_spout.structured.pages.page_channel import PageServerAddress, fetch_segments
from kinesis_spout.structured.pages.page_server import PageServer, advertised_host
from tests.support.waiting import wait_until
from tests.unit.structured.pages.pages import page_of, sequences_of

STEP = 4
"""Rows that are sent at once."""
WIDE = 100_000


class Pages:
    """Three pages of ten records; those of the last one have 100 KB each."""

    def __init__(self) -> None:
        self.buffer = PageBuffer()
        for start, width in ((0, 0), (10, 0), (20, WIDE)):
            page = page_of(range(start, start + 10), width=width)
            self.buffer.append(("orders", "a"), page, data_bytes=100)


@pytest.fixture(params=["on this machine", "over the network"])
def server(request: pytest.FixtureRequest) -> Iterator[PageServer]:
    served = PageServer("127.0.0.1", Pages().buffer.page)
    if request.param == "over the network":
        served.address = replace(served.address, local=None)
    else:
        assert served.address.local is not None, "expected a system that can do it (Linux)"
    yield served
    page_channel._connections.forget()
    served.close()


def fetched(server: PageServer, *segments: PageSegment) -> list[list[int]]:
    batches = fetch_segments(server.address, segments, SCHEMA, rows_at_once=STEP)
    return [sequences_of(batch) for batch in batches]


def test_segments_come_whole_and_in_their_order(server: PageServer) -> None:
    assert fetched(server, PageSegment(1, 8, 2), PageSegment(2, 0, 3)) == [[18, 19], [20, 21, 22]]


def test_pages_come_in_pieces(server: PageServer) -> None:
    assert fetched(server, PageSegment(0, 0, 6)) == [[0, 1, 2, 3], [4, 5]]
    assert fetched(server, PageSegment(2, 1, 9)) == [[21, 22, 23, 24], [25, 26, 27, 28], [29]]


def test_the_data_is_what_it_was(server: PageServer) -> None:
    batches = fetch_segments(server.address, [PageSegment(2, 0, 10)], SCHEMA, rows_at_once=STEP)
    data = [data for batch in batches for data in batch.column("data").to_pylist()]
    assert data == [str(number).zfill(WIDE).encode() for number in range(20, 30)]


def test_what_came_outlives_the_page_and_the_server() -> None:
    pages = Pages()
    served = PageServer("127.0.0.1", pages.buffer.page)
    (batch,) = fetch_segments(served.address, [PageSegment(2, 1, 2)], SCHEMA, rows_at_once=STEP)
    pages.buffer.drop_shard(("orders", "a"))
    page_channel._connections.forget()
    served.close()

    assert sequences_of(batch) == [21, 22]


def test_a_machine_that_does_not_know_the_local_name_uses_the_network(server: PageServer) -> None:
    elsewhere = replace(server.address, local="of another machine")
    batches = fetch_segments(elsewhere, [PageSegment(2, 0, 1)], SCHEMA, rows_at_once=STEP)
    assert [sequences_of(batch) for batch in batches] == [[20]]


NO_NAME = "x" * 200
"""Too long for a Unix socket: stands for a system that allows none."""


def test_where_no_local_name_can_be_used_the_network_is(server: PageServer) -> None:
    batches = fetch_segments(
        replace(server.address, local=NO_NAME), [PageSegment(2, 0, 1)], SCHEMA, rows_at_once=STEP
    )
    assert [sequences_of(batch) for batch in batches] == [[20]]


def test_where_no_local_name_can_be_had_the_network_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda: NO_NAME)
    served = PageServer("127.0.0.1", Pages().buffer.page)
    assert served.address.local is None
    assert fetched(served, PageSegment(2, 0, 1)) == [[20]]
    page_channel._connections.forget()
    served.close()


def test_a_connection_serves_many_tasks(server: PageServer) -> None:
    for row in range(10):
        assert fetched(server, PageSegment(0, row, 1)) == [[row]]


def test_it_ends_where_a_page_is_gone(server: PageServer) -> None:
    assert fetched(server, PageSegment(0, 0, 1), PageSegment(7, 0, 1), PageSegment(1, 0, 1)) == [[0]]
    assert fetched(server, PageSegment(1, 0, 1)) == [[10]]


def test_a_task_that_gives_up_in_the_middle_disturbs_no_other(server: PageServer) -> None:
    abandoned = fetch_segments(
        server.address, [PageSegment(0, 0, 5), PageSegment(1, 0, 5)], SCHEMA, rows_at_once=9
    )
    assert sequences_of(next(abandoned)) == [0, 1, 2, 3, 4]
    abandoned.close()
    assert fetched(server, PageSegment(2, 0, 1)) == [[20]]


def test_who_does_not_know_the_key_gets_nothing(server: PageServer, caplog: pytest.LogCaptureFixture) -> None:
    stranger = replace(server.address, key=b"guessed")
    with caplog.at_level(logging.ERROR):
        assert list(fetch_segments(stranger, [PageSegment(0, 0, 1)], SCHEMA, rows_at_once=STEP)) == []
    assert fetched(server, PageSegment(0, 0, 1)) == [[0]]


def test_a_server_that_is_not_there_is_asked_once_only(caplog: pytest.LogCaptureFixture) -> None:
    gone = PageServer("127.0.0.1", Pages().buffer.page)
    gone.close()
    for _ in range(3):
        assert list(fetch_segments(gone.address, [PageSegment(0, 0, 1)], SCHEMA, rows_at_once=STEP)) == []
    assert len([record for record in caplog.records if "cannot be reached" in record.message]) == 1


def test_the_key_is_not_in_the_text_of_an_address(server: PageServer) -> None:
    assert repr(server.address.key) not in repr(server.address)


def test_what_a_stranger_sends_ends_no_service(server: PageServer) -> None:
    where = (server.address.host, server.address.port)
    for said in (b"GET / HTTP/1.0\r\n\r\n", b"\x00\x00\x00\x02ab", b"\xff\xff\xff\xff", b""):
        with socket.create_connection(where) as stranger:
            stranger.sendall(said)
        assert fetched(server, PageSegment(0, 0, 1)) == [[0]]
        page_channel._connections.forget()


def test_a_stranger_who_says_nothing_keeps_nobody_waiting(server: PageServer) -> None:
    where = (server.address.host, server.address.port)
    with socket.create_connection(where), socket.create_connection(where):
        assert fetched(server, PageSegment(0, 0, 1)) == [[0]]


def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_connections, "HANDSHAKE_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = PageServerAddress(host="127.0.0.1", port=mute.getsockname()[1], key=b"key")
        assert list(fetch_segments(address, [PageSegment(0, 0, 1)], SCHEMA, rows_at_once=STEP)) == []


def test_a_server_that_stops_in_the_middle_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_channel, "_ANSWER_SECONDS", 0.2)
    asked = threading.Event()

    def never(_: int) -> None:
        asked.wait()

    served = PageServer("127.0.0.1", never)
    assert fetched(served, PageSegment(0, 0, 1)) == []
    asked.set()
    served.close()


def test_a_closed_server_takes_nobody(server: PageServer) -> None:
    assert fetched(server, PageSegment(0, 0, 1)) == [[0]]
    page_channel._connections.forget()
    server.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((server.address.host, server.address.port)).close()


def test_a_worker_that_outlives_many_queries_keeps_few_connections() -> None:
    page_channel._connections.forget()
    before = open_files()
    for _ in range(40):
        served = PageServer("127.0.0.1", Pages().buffer.page)
        assert fetched(served, PageSegment(0, 0, 1)) == [[0]]
        served.close()
    wait_until(
        # Both ends are in this process.
        lambda: open_files() - before <= 2 * page_channel._KEPT_CONNECTIONS,
        "the servers to note that connections ended",
    )
    page_channel._connections.forget()


def test_a_forked_child_does_not_ask_on_its_parents_connection(server: PageServer) -> None:
    assert fetched(server, PageSegment(0, 0, 1)) == [[0]]
    assert page_channel._connections._idle
    context = multiprocessing.get_context("fork")
    answers, answer = context.Pipe(duplex=False)
    child = context.Process(target=lambda: answer.send(len(page_channel._connections._idle)))
    child.start()
    child.join()
    assert answers.recv() == 0
    assert fetched(server, PageSegment(0, 1, 1)) == [[1]]


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


@pytest.mark.parametrize(
    ("named", "of_host_name", "on_network", "advertised"),
    [
        ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.1"),
        ("", "10.0.0.2", "10.0.0.3", "10.0.0.2"),
        ("", "127.0.1.1", "10.0.0.3", "10.0.0.3"),
        ("", "127.0.1.1", None, "127.0.1.1"),
    ],
    ids=[
        "SPARK_LOCAL_IP",
        "the host name's",
        "the network's where that is loopback",
        "loopback without a network",
    ],
)
def test_the_address_is_one_that_other_machines_reach(
    named: str, of_host_name: str, on_network: str | None, advertised: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", named)
    monkeypatch.setattr(socket, "gethostbyname", lambda _: of_host_name)
    monkeypatch.setattr(page_server, "_network_address", lambda: on_network)

    assert advertised_host() == advertised


def test_the_address_on_the_network_is_this_machines_own() -> None:
    address = page_server._network_address()
    if address is None:
        pytest.skip("this machine has no network")
    assert not address.startswith("127.")
    PageServer(address, Pages().buffer.page).close()
