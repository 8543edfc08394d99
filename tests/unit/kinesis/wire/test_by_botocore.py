"""The first call to a place, and every call through a proxy, is botocore's."""

import socketserver
import threading
from collections.abc import Iterator

import pytest

from kinesis_spout.kinesis import KinesisClientSettings
from kinesis_spout.kinesis.calls import RAW_BODY, translated
from kinesis_spout.kinesis.read.page import decode_reply
from kinesis_spout.model.errors import Unavailable

RECORD = b'{"Data":"AAAA","PartitionKey":"k","SequenceNumber":"7"}'
BODY = b'{"MillisBehindLatest":0,"Records":[' + b",".join([RECORD] * 20_000) + b"]}"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.1\r\n"


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    answer = b""
    silent_afterwards = False


class Connection(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        length = 0
        while (line := self.rfile.readline()) not in {b"\r\n", b""}:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        self.rfile.read(length)
        self.wfile.write(server.answer)
        if server.silent_afterwards:
            self.rfile.read(1)  # until the caller hangs up


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Connection) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def get_records(server: Server, *, read_timeout_seconds: float = 60.0) -> bytes:
    client = KinesisClientSettings(
        region="us-east-1",
        endpoint_url=f"http://127.0.0.1:{server.server_address[1]}",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        read_timeout_seconds=read_timeout_seconds,
    ).create()
    try:
        with translated("GetRecords"):
            body: bytes = client.get_records(ShardIterator="it")[RAW_BODY]  # type: ignore[typeddict-item]
        return body
    finally:
        client.close()


def test_a_body_of_known_length_is_read_whole(server: Server) -> None:
    server.answer = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
    assert get_records(server) == BODY


def test_a_body_in_chunks_is_read_whole(server: Server) -> None:
    half = len(BODY) // 2
    server.answer = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    for chunk in (BODY[:half], BODY[half:], b""):
        server.answer += b"%x\r\n%b\r\n" % (len(chunk), chunk)
    assert get_records(server) == BODY


def test_a_body_that_is_cut_off_may_be_asked_for_again(server: Server) -> None:
    server.answer = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY[:5_000]
    with pytest.raises(Unavailable):
        decode_reply(get_records(server))


@pytest.mark.parametrize("count", [0, 20])
def test_an_error_that_is_cut_off_may_be_asked_for_again(server: Server, count: int) -> None:
    body = b'{"__type":"ProvisionedThroughputExceededException"}'
    head = HEAD.replace(b"200 OK", b"400 Bad Request")
    server.answer = head + b"Content-Length: %d\r\n\r\n" % len(body) + body[:count]
    with pytest.raises(Unavailable, match=f"{count} read, but total bytes expected is {len(body)}"):
        get_records(server)


def test_a_body_that_does_not_go_on_times_out_and_may_be_asked_for_again(server: Server) -> None:
    server.answer = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY[:5_000]
    server.silent_afterwards = True
    with pytest.raises(Unavailable):
        get_records(server, read_timeout_seconds=0.3)
