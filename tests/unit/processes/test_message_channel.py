"""Messages arrive whole and in order, with a bound on their size and on the time that one waits for them."""

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from kinesis_spout.processes.message_channel import ChannelClosed, MessageChannel

Ends = tuple[MessageChannel, MessageChannel]


@pytest.fixture(params=["local", "tcp"])
def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    if request.param == "local":
        first, second = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            first = socket.create_connection(listening.getsockname())
            second, _ = listening.accept()
    with MessageChannel(first) as ours, MessageChannel(second, wait_seconds=30) as theirs:
        yield ours, theirs


def test_messages_of_any_size_arrive_whole_and_in_order(ends: Ends) -> None:
    ours, theirs = ends
    messages = [b"", b"a" * 1024, b"b" * 1025, bytes(range(256)) * 10_000]

    def send_all() -> None:
        for each in messages:
            ours.send(each)

    sending = threading.Thread(target=send_all)
    sending.start()
    assert [theirs.receive() for _ in messages] == messages
    sending.join()


def test_a_message_arrives_in_memory_that_the_receiver_has_allocated(ends: Ends) -> None:
    ours, theirs = ends
    memory = bytearray(3)
    ours.send(b"abc")
    assert theirs.receive(allocate=lambda _: memory) is memory
    assert memory == b"abc"


def test_a_message_beyond_the_bound_is_refused_before_memory_is_taken(ends: Ends) -> None:
    ours, theirs = ends
    ours.send(b"abcd")
    with pytest.raises(OSError, match="expected a message of at most 3 bytes, got one of 4"):
        theirs.receive(3)


def test_the_end_between_two_messages_is_told_from_one_within_a_message(ends: Ends) -> None:
    ours, theirs = ends
    ours.send(b"last")
    ours.close()
    assert theirs.receive() == b"last"
    with pytest.raises(ChannelClosed):
        theirs.receive()


@pytest.mark.parametrize("sent", [b"\0\0\0", (5).to_bytes(8, "big") + b"abc"])
def test_an_end_within_a_message_is_an_error(sent: bytes) -> None:
    client, server = socket.socketpair()
    with MessageChannel(server) as channel:
        client.sendall(sent)
        client.close()
        with pytest.raises(ConnectionError, match="within a message") as caught:
            channel.receive()
    assert not isinstance(caught.value, ChannelClosed)


def test_one_that_sends_nothing_is_waited_for_no_longer_than_that() -> None:
    silent, server = socket.socketpair()
    with silent, MessageChannel(server, wait_seconds=0.05) as channel:
        with pytest.raises(TimeoutError, match=r"nothing came for 0\.05 s"):
            channel.receive()
        channel.set_timeout(0.05)
        with pytest.raises(TimeoutError):
            channel.receive()


def test_a_channel_is_quiet_while_the_other_end_waits(ends: Ends) -> None:
    ours, theirs = ends
    assert theirs.is_quiet()
    ours.send(b"a")
    assert theirs.receive() == b"a"
    assert theirs.is_quiet()
    ours.close()
    assert not theirs.is_quiet()


def test_another_thread_wakes_the_one_that_waits(ends: Ends) -> None:
    ours, theirs = ends
    ended: list[type[BaseException]] = []

    def wait() -> None:
        try:
            ours.receive()
        except OSError as error:
            ended.append(type(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    ours.shut()
    waiting.join(timeout=30)
    assert ended == [ChannelClosed]
    theirs.close()
    ours.shut()  # has no effect


def test_descriptors_travel_with_their_message_on_one_machine() -> None:
    client, server = socket.socketpair()
    reading, writing = os.pipe()
    try:
        with MessageChannel(client) as ours, MessageChannel(server) as theirs:
            assert ours.is_local
            ours.send(b"take it", (writing,))
            ours.send(b"and go on")
            body, descriptors = theirs.receive_with_descriptors()
            assert (bytes(body), len(descriptors)) == (b"take it", 1)
            body, others = theirs.receive_with_descriptors()
            assert (bytes(body), others) == (b"and go on", [])
            os.write(descriptors[0], b"through")
            os.close(descriptors[0])
            assert os.read(reading, 100) == b"through"
            ours.close()
            with pytest.raises(ChannelClosed):
                theirs.receive_with_descriptors()
    finally:
        os.close(reading)
        os.close(writing)


def test_descriptors_of_a_message_that_does_not_arrive_are_closed() -> None:
    client, server = socket.socketpair()
    reading, writing = os.pipe()
    try:
        with MessageChannel(client) as ours, MessageChannel(server) as theirs:
            ours.send(b"take it", (writing,))
            os.close(writing)
            with pytest.raises(OSError, match="at most 3 bytes"):
                theirs.receive_with_descriptors(3)
        os.set_blocking(reading, False)
        assert os.read(reading, 1) == b"", "nobody can write"
    finally:
        os.close(reading)
