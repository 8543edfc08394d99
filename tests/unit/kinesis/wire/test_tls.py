"""Who is trusted over TLS, and what a second connection costs."""

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import SSLError

from kinesis_spout.kinesis.io_thread import IO
from kinesis_spout.kinesis.wire.calls import Wire
from kinesis_spout.kinesis.wire.connections import Connection, Connections
from kinesis_spout.kinesis.wire.credentials import Signing
from tests.support.kinesis.own_certificate import own_certificate
from tests.unit.kinesis.wire.servers import EMPTY, answer_of


class TlsServer:
    """Answers each request, whatever it says, on connections that are kept. Mutable."""

    def __init__(self, folder: Path) -> None:
        self.chain = own_certificate(folder)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(self.chain)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.answer = answer_of(EMPTY)
        self.resumed: list[bool | None] = []
        self.certificates: list[Any] = []
        self._is_closing = False
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            accepted, _ = self.listener.accept()
            if self._is_closing:
                accepted.close()
                return
            thread = threading.Thread(target=self._serve, args=(accepted,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, accepted: socket.socket) -> None:
        with accepted:
            try:
                with self.context.wrap_socket(accepted, server_side=True) as connection:
                    self.resumed.append(connection.session_reused)
                    self.certificates.append(connection.getpeercert())
                    while connection.recv(65_536):
                        connection.sendall(self.answer)
            except OSError:
                return  # whoever does not trust it hangs up

    def close(self) -> None:
        self._is_closing = True
        socket.create_connection(self.listener.getsockname()).close()
        self._accepting.join()
        self.listener.close()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TlsServer]:
    server = TlsServer(tmp_path)
    yield server
    server.close()


def connections(
    server: TlsServer, ca_bundle: str | None, host: str = "127.0.0.1", **config: Any
) -> Connections:
    url = f"https://{host}:{server.listener.getsockname()[1]}/"
    client: Any = SimpleNamespace(
        meta=SimpleNamespace(config=Config(proxies={}, connect_timeout=5, max_pool_connections=4, **config))
    )
    return Wire(client, Signing(lambda: None), ca_bundle).connections_to(url)


async def answered(connections: Connections) -> Connection:
    """Have a new connection answer a call."""
    connection = await connections.open()
    reply = await connection.exchange(b"request", 5.0)
    assert reply.body == EMPTY
    return connection


def test_a_second_connection_resumes_the_session_of_the_first(server: TlsServer) -> None:
    kept = connections(server, str(server.chain))

    async def two() -> None:
        for _ in range(2):
            kept.give_back(await answered(kept))

    IO.run(two())
    kept.close()

    assert server.resumed == [False, True]


def test_a_certificate_of_an_unknown_authority_is_refused(server: TlsServer) -> None:
    with pytest.raises(SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        IO.run(connections(server, None).open())


def test_a_certificate_of_another_host_is_refused(server: TlsServer) -> None:
    with pytest.raises(SSLError, match="match"):
        IO.run(connections(server, str(server.chain), host="localhost").open())


def test_an_own_certificate_is_shown_to_a_server_that_asks_for_one(server: TlsServer) -> None:
    server.context.verify_mode = ssl.CERT_REQUIRED
    server.context.load_verify_locations(server.chain)
    kept = connections(server, str(server.chain), client_cert=str(server.chain))
    kept.give_back(IO.run(answered(kept)))
    kept.close()

    assert len(server.certificates) == 1
    assert server.certificates[0]


def test_what_came_with_the_end_of_an_answer_is_seen_before_the_next_call(server: TlsServer) -> None:
    long = b"x" * 20_000
    server.answer = answer_of(long) + answer_of(EMPTY)
    kept = connections(server, str(server.chain))

    async def two() -> None:
        connection = await kept.open()
        reply = await connection.exchange(b"request", 5.0)
        kept.give_back(connection)
        assert reply.body == long
        assert kept.take() is None

    IO.run(two())
    kept.close()


def test_closing_leaves_no_socket_open_and_nothing_is_kept_afterwards(server: TlsServer) -> None:
    kept = connections(server, str(server.chain))

    async def one() -> Connection:
        connection = await answered(kept)
        kept.give_back(connection)
        return connection

    before = IO.run(one())
    kept.close()
    after = IO.run(one())

    assert [before.is_open, after.is_open] == [False, False]
