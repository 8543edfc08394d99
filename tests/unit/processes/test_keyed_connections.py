"""How the ends of a connection prove that they know the key, also where MD5 is not to be had."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kinesis_spout.processes import keyed_connections
from kinesis_spout.processes.keyed_connections import (
    MAX_STRANGERS,
    KeyedServer,
    Machine,
    connect,
    introduce,
    welcome,
)
from tests.unit.processes.fips import refuse_md5

KEY = b"k" * 32


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    client, server = socket.socketpair()
    with client, server:
        yield client, server


def failure_of(end: Callable[[], None]) -> OSError | None:
    try:
        end()
    except OSError as error:
        return error
    return None


def shaken(client: Callable[[], None], server: Callable[[], None]) -> tuple[OSError | None, OSError | None]:
    """Run both ends, and tell what each raised."""
    failures: list[OSError | None] = []
    other = threading.Thread(target=lambda: failures.append(failure_of(server)))
    other.start()
    failure = failure_of(client)
    other.join()
    return failure, failures[0]


def test_strangers_that_say_nothing_take_no_more_than_their_room() -> None:
    server = KeyedServer("127.0.0.1", KEY, lambda channel: channel.send(b"served"), "keyed-test")
    machine = Machine("127.0.0.1", server.port)
    strangers = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2 * MAX_STRANGERS)]
    try:
        with connect(machine, KEY) as channel:
            assert channel.receive() == b"served"
        for stranger in strangers[:MAX_STRANGERS]:
            stranger.settimeout(30)
            assert stranger.recv(100) == b"", "the oldest made room, long before their time was over"
        strangers[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            strangers[-1].recv(100)
    finally:
        for stranger in strangers:
            stranger.close()
        server.close()


def test_two_that_know_the_key_find_each_other(ends: tuple[socket.socket, socket.socket]) -> None:
    client, server = ends
    assert shaken(lambda: introduce(client, KEY), lambda: welcome(server, KEY)) == (None, None)
    client.sendall(b"what follows")
    assert server.recv(100) == b"what follows"


def test_a_client_with_another_key_is_refused(ends: tuple[socket.socket, socket.socket]) -> None:
    client, server = ends

    def closing() -> None:
        with server:
            welcome(server, KEY)

    ours, theirs = shaken(lambda: introduce(client, b"guessed"), closing)
    assert "does not know the key" in str(theirs)
    assert "closed the connection" in str(ours)


def test_a_server_that_does_not_know_the_key_is_refused(ends: tuple[socket.socket, socket.socket]) -> None:
    client, server = ends

    def pretending() -> None:
        greeting = server.recv(1000)
        server.sendall(greeting)
        server.sendall(b"?" * len(server.recv(1000)))

    failure, _ = shaken(lambda: introduce(client, KEY), pretending)
    assert "does not know the key" in str(failure)


def test_who_sends_back_what_comes_is_refused(ends: tuple[socket.socket, socket.socket]) -> None:
    client, mirror = ends

    def reflecting() -> None:
        mirror.sendall(mirror.recv(1000))
        mirror.sendall(mirror.recv(1000))

    failure, _ = shaken(lambda: introduce(client, KEY), reflecting)
    assert "does not know the key" in str(failure)


def test_an_answer_is_of_no_use_on_another_connection(ends: tuple[socket.socket, socket.socket]) -> None:
    client, server = ends
    overheard = keyed_connections._End(client, KEY)

    def repeating() -> None:
        overheard.send_greeting()
        client.recv(1000)
        overheard.send_proof(b"client", overheard.ours, b"the number of that connection".ljust(32))

    _, failure = shaken(repeating, lambda: welcome(server, KEY))
    assert "does not know the key" in str(failure)


def test_another_version_is_told_from_a_wrong_key(ends: tuple[socket.socket, socket.socket]) -> None:
    client, server = ends
    client.sendall(b"kinesis-spout pages 9\n" + bytes(100))
    with pytest.raises(
        ConnectionError, match=r"expected b'kinesis-spout pages .*got b'kinesis-spout pages 9"
    ):
        welcome(server, KEY)


@pytest.mark.parametrize("end", [introduce, welcome])
def test_who_says_a_little_now_and_then_is_not_waited_for_longer(
    ends: tuple[socket.socket, socket.socket],
    end: Callable[[socket.socket, bytes], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keyed_connections, "HANDSHAKE_SECONDS", 0.1)
    ours, slow = ends
    over = threading.Event()

    def drip() -> None:
        for byte in keyed_connections._GREETING + bytes(1000):
            slow.sendall(bytes([byte]))
            if over.wait(0.02):
                return

    dripping = threading.Thread(target=drip)
    dripping.start()
    with pytest.raises(TimeoutError):
        end(ours, KEY)
    over.set()
    dripping.join()


PAGES_FROM_END_TO_END = """
import hashlib
from kinesis_spout.model.columns import SCHEMA
from kinesis_spout.structured.pages.page_buffer import PageBuffer, PageSegment
from kinesis_spout.structured.pages.page_channel import fetch_segments
from kinesis_spout.structured.pages.page_server import PageServer
from tests.unit.structured.pages.pages import page_of, sequences_of

try:
    hashlib.md5(b"")
except ValueError:
    print("no MD5:", end=" ")
buffer = PageBuffer()
buffer.append(("orders", "a"), page_of(range(3)), data_bytes=100)
server = PageServer("127.0.0.1", buffer.page)
batches = fetch_segments(server.address, [PageSegment(0, 0, 3)], SCHEMA, rows_at_once=2)
print([sequences_of(batch) for batch in batches])
"""


def test_pages_come_on_a_system_that_refuses_md5(tmp_path: Path) -> None:
    refuse_md5(tmp_path)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", PAGES_FROM_END_TO_END],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout == "no MD5: [[0, 1], [2]]\n", done.stderr
