"""A small Kinesis of idle shards on loopback, over HTTP or TLS, whose faults a test chooses."""

import json
import socket
import socketserver
import ssl
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from kinesis_spout.kinesis import KinesisClientSettings

_RECORD_TIME: Final = 1_700_000_000.0


class FaultyEndpoint(socketserver.ThreadingTCPServer):
    """Every shard has the records that ``put`` gave it. Mutable; close it by ``with``."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, certificate: Path | None = None, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Connection)
        self._certificate = certificate
        self._tls: ssl.SSLContext | None = None
        if certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(certificate)
        self.lock = threading.Lock()
        self.polls: Counter[str] = Counter()
        """GetRecords calls, by shard, whatever became of them."""
        self.cuts = 0
        """How many calls found their connection closed instead of an answer."""
        self.connections = 0
        self.slow_seconds: dict[str, float] = {}
        """How long an answer takes, by shard."""
        self.cut_every = 0
        """Every so many calls, the connection is closed instead of an answer; 0: never."""
        self._records: dict[str, list[dict[str, Any]]] = {}
        self._sockets: set[socket.socket] = set()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.cut_all()
        self.server_close()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def settings(self, *, read_timeout_seconds: float = 20.0) -> KinesisClientSettings:
        """How a client reaches it."""
        scheme = "http" if self._tls is None else "https"
        return KinesisClientSettings(
            region="us-east-1",
            endpoint_url=f"{scheme}://127.0.0.1:{self.port}",
            aws_access_key_id="test",
            aws_secret_access_key="test",
            ca_bundle=None if self._certificate is None else str(self._certificate),
            read_timeout_seconds=read_timeout_seconds,
        )

    def put(self, shard_id: str, data: str, copies: int = 1) -> None:
        """Add so many records to a shard; ``data`` is base64."""
        with self.lock:
            records = self._records.setdefault(shard_id, [])
            for _ in range(copies):
                records.append(
                    {
                        "ApproximateArrivalTimestamp": _RECORD_TIME,
                        "Data": data,
                        "PartitionKey": "k",
                        "SequenceNumber": str(1000 + len(records)),
                    }
                )

    def cut_all(self) -> None:
        """Close all connections."""
        with self.lock:
            sockets = list(self._sockets)
        for each in sockets:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # it has gone by itself

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        with self.lock:
            self.connections += 1
            self._sockets.add(connection)
        return connection, address

    def secured(self, connection: socket.socket) -> socket.socket:
        return connection if self._tls is None else self._tls.wrap_socket(connection, server_side=True)

    def answer(self, action: str, request: dict[str, Any]) -> bytes | None:
        """Answer a call; None: close the connection."""
        if action == "GetShardIterator":
            return json.dumps({"ShardIterator": f"{request['ShardId']}/0"}).encode()
        shard_id, _, at = request["ShardIterator"].partition("/")
        with self.lock:
            self.polls[shard_id] += 1
            is_cut = self.cut_every > 0 and self.polls.total() % self.cut_every == 0
            self.cuts += is_cut
            records = self._records.get(shard_id, [])[int(at) : int(at) + request["Limit"]]
        time.sleep(self.slow_seconds.get(shard_id, 0.0))
        if is_cut:
            return None
        iterator = f"{shard_id}/{int(at) + len(records)}"
        return json.dumps(
            {"MillisBehindLatest": 0, "NextShardIterator": iterator, "Records": records}
        ).encode()


class _Connection(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        endpoint = self.server
        assert isinstance(endpoint, FaultyEndpoint)
        try:
            with endpoint.secured(self.request) as connection, connection.makefile("rb") as stream:
                while stream.readline():
                    headers = {}
                    while (line := stream.readline()) not in {b"\r\n", b""}:
                        name, _, value = line.decode("latin-1").partition(":")
                        headers[name.lower()] = value.strip()
                    request = json.loads(stream.read(int(headers["content-length"])))
                    body = endpoint.answer(headers["x-amz-target"].partition(".")[2], request)
                    if body is None:
                        return
                    connection.sendall(
                        b"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.1\r\n"
                        b"Content-Length: %d\r\n\r\n" % len(body) + body
                    )
        except OSError:
            return  # cut, or the client hung up
