"""Answers as they come in, in pieces of any size."""

import random
from io import BytesIO

import pytest

from kinesis_spout.kinesis.wire.http import (
    KEPT_BYTES,
    ProtocolError,
    Reply,
    ReplyReader,
    read_head,
    request,
    request_start,
)

LARGE = random.Random(7).randbytes(3 * KEPT_BYTES + 11)


def head(*lines: str, status: str = "HTTP/1.1 200 OK") -> bytes:
    return "\r\n".join((status, *lines, "", "")).encode()


def chunked(*chunks: bytes, trailer: bytes = b"") -> bytes:
    coded = b"".join(b"%X;of=us\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return head("Transfer-Encoding: chunked") + coded + b"0\r\n" + trailer + b"\r\n"


def read(
    answer: bytes, *, piece: int = 1 << 20, reader: ReplyReader | None = None, ends: bool = False
) -> Reply:
    """Read an answer that comes in pieces of at most so many bytes."""
    reader = reader or ReplyReader()
    at = 0
    while at < len(answer):
        space = reader.space()
        size = min(piece, len(space), len(answer) - at)
        assert size > 0
        space[:size] = answer[at : at + size]
        at += size
        reply = reader.received(size)
        if reply is not None:
            return reply
    if ends:
        reply = reader.received(0)
        assert reply is not None
        return reply
    raise AssertionError("expected a reply, got none")


GOOD = {
    "of known length": (head("Content-Type: a/b", "content-LENGTH: 4") + b"body", b"body"),
    "without a body": (head("Content-Length: 0"), b""),
    "large": (head(f"Content-Length: {len(LARGE)}") + LARGE, LARGE),
    "with a long head": (head(f"X: {'y' * 40_000}", "Content-Length: 1") + b"z", b"z"),
    "in chunks": (chunked(b"one", LARGE), b"one" + LARGE),
    "in chunks, with a trailer": (chunked(b"one", trailer=b"Sum: 1\r\n"), b"one"),
    "in no chunks": (chunked(), b""),
    "after 100 Continue": (
        head(status="HTTP/1.1 100 Continue") + head("Content-Length: 4") + b"body",
        b"body",
    ),
    "after two hints": (
        head("Link: x", status="HTTP/1.1 103 Early Hints") * 2 + head("Content-Length: 4") + b"body",
        b"body",
    ),
    "that has no body by its status": (head(status="HTTP/1.1 204 No Content"), b""),
    "without a reason": (head("Content-Length: 1", status="HTTP/1.1 200") + b"x", b"x"),
}


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("piece", [1, 7, 1_000, 1 << 20])
def test_an_answer_is_read_in_pieces_of_any_size(name: str, piece: int) -> None:
    answer, body = GOOD[name]
    reader = ReplyReader()

    replies = [read(answer, piece=piece, reader=reader) for _ in range(2)]

    assert [bytes(reply.body) for reply in replies] == [body, body], "one answer leaves nothing for the next"
    assert not replies[0].closes
    assert not reader.has_begun


@pytest.mark.parametrize("name", GOOD)
def test_an_answer_that_is_cut_anywhere_is_an_error(name: str) -> None:
    answer, _ = GOOD[name]
    cuts = range(len(answer)) if len(answer) < 500 else random.Random(3).sample(range(len(answer)), 200)
    for cut in cuts:
        reader = ReplyReader()
        with pytest.raises(AssertionError, match="got none"):
            read(answer[:cut], reader=reader)
        with pytest.raises(ConnectionError):
            reader.received(0)


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("piece", [1, 7, 1_000, 1 << 20])
def test_a_head_is_read_from_a_source_that_blocks_with_what_comes_with_it(name: str, piece: int) -> None:
    answer, body = GOOD[name]
    source, reader = BytesIO(answer), ReplyReader()

    head, rest = read_head(lambda: source.read(piece))
    reply = reader.body_follows(head, rest)
    while reply is None:
        reply = reader.received(source.readinto(reader.space()[:piece]))

    assert bytes(reply.body) == body


@pytest.mark.parametrize("answer", [head()[:-1], b"", head(f"X: {'y' * 70_000}")[:-2] + b"y" * 70_000])
def test_a_head_that_ends_too_early_or_never_is_an_error(answer: bytes) -> None:
    source = BytesIO(answer)
    with pytest.raises(ConnectionError, match="expected "):
        read_head(lambda: source.read(1_000))


def test_a_body_without_a_length_ends_with_its_connection() -> None:
    reply = read(head("Content-Type: text/html") + LARGE, piece=999, ends=True)

    assert bytes(reply.body) == LARGE
    assert reply.closes


@pytest.mark.parametrize(
    ("answer", "closes"),
    [
        (head("Content-Length: 0"), False),
        (head("Content-Length: 0", "Connection: close"), True),
        (head("Content-Length: 0", "connection: Keep-Alive, CLOSE"), True),
        (head("Content-Length: 0", status="HTTP/1.0 200 OK"), True),
        (head("Content-Length: 0", "Connection: keep-alive", status="HTTP/1.0 200 OK"), False),
        (head("Content-Length: 0") + b"more than announced", True),
        (head("Transfer-Encoding: chunked", "Content-Length: 3") + b"0\r\n\r\n", True),
        (chunked(b"a") + b"x", True),
    ],
)
def test_a_connection_is_kept_only_if_both_sides_know_where_the_next_answer_begins(
    answer: bytes,
    closes: bool,  # noqa: FBT001 - pytest passes it by name
) -> None:
    assert read(answer).closes is closes


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/2 200\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        head(status="HTTP/1.1 2000 OK"),
        head(status="HTTP/1.1 abc"),
        head(status="HTTP/1.1 101 Switching Protocols"),
        head("Content-Length: -1"),
        head("Content-Length: 1_0"),
        head("Content-Length: ²"),
        head("Content-Length: 1", "Content-Length: 2"),
        head("Content-Length: 99999999999999999999"),
        head("Transfer-Encoding: gzip, chunked"),
        head("Content-Length : 1"),
        head(" folded: 1"),
        head("no colon"),
        head("Transfer-Encoding: chunked") + b"xyz\r\n",
        head("Transfer-Encoding: chunked") + b"-1\r\n",
        head("Transfer-Encoding: chunked") + b"\r\n",
        head("Transfer-Encoding: chunked") + b"123456789\r\n",
        head("Transfer-Encoding: chunked") + b"1\r\nabc",
        head("Transfer-Encoding: chunked") + b"1" * 2_000,
        b"x" * 70_000,
    ],
)
def test_what_is_no_answer_is_refused(answer: bytes) -> None:
    with pytest.raises(ProtocolError):
        read(answer)


def test_random_damage_gives_a_reply_or_a_connection_error() -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    answers = [answer for answer, _ in GOOD.values() if len(answer) < 1_000]
    for _ in range(5_000):
        answer = bytearray(chance.choice(answers))
        for _ in range(chance.randrange(1, 4)):
            answer[chance.randrange(len(answer))] = chance.randrange(256)
        try:
            read(bytes(answer), piece=chance.choice((1, 5, 1_000)), ends=True)
        except ConnectionError:
            pass
        except Exception as error:
            raise AssertionError(f"seed {seed}: {bytes(answer)!r}") from error


def test_headers_are_found_by_their_names_in_lower_case() -> None:
    reply = read(
        head("X-Amzn-RequestId: r", "A: 1", "a:  2 ", "Content-Type: text/x; y=z", "Content-Length: 0")
    )

    assert reply.headers == {
        "x-amzn-requestid": "r",
        "a": "1, 2",
        "content-type": "text/x; y=z",
        "content-length": "0",
    }
    assert reply.content_type == "text/x; y=z"


def test_a_request_has_its_length_and_its_authorization() -> None:
    start = request_start("POST", "/a?b", {"Host": "h", "X": "Zoë"})

    assert request(start, "signed", b"body") == (
        b"POST /a?b HTTP/1.1\r\nHost: h\r\nX: Zo\xeb\r\nAuthorization: signed\r\nContent-Length: 4\r\n\r\nbody"
    )
