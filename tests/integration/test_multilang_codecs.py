"""Bolts and spouts of pystorm, made for Storm, understand what our codecs write; our codecs understand them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kinesis_spout.storm.multilang.frames import CODECS, Codec
from kinesis_spout.storm.multilang.protocol import (
    Ack,
    Emit,
    Error,
    Fail,
    Handshake,
    InvalidOutput,
    Log,
    Message,
    Next,
    Pid,
    Sync,
    TaskIds,
    TupleIn,
    heartbeat,
    parse,
    tick,
)

BOLT = """
import sys
from pystorm import Bolt

class Split(Bolt):
    exit_on_exception = False

    def process(self, tup):
        for word in tup.values[0].split():
            self.emit([word, len(word)], need_task_ids=word == "asks")

    def process_tick(self, tup):
        self.emit(["tick"])

Split(serializer=sys.argv[1]).run()
"""

SPOUT = """
import sys
from pystorm import ReliableSpout

class Words(ReliableSpout):
    def next_tuple(self):
        self.emit(["word"], tup_id=7)

Words(serializer=sys.argv[1]).run()
"""


class Component:
    """A program that was started, and what our codec makes of its output."""

    def __init__(self, program: str, codec: Codec, directory: Path) -> None:
        path = directory / "component.py"
        path.write_text(program)
        self._codec = codec
        self._decoder = codec.decoder()
        self._heard: list[Message] = []
        self._errors = (directory / "errors").open("wb")
        command = [sys.executable, str(path), codec.name]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, bufsize=0
        )
        self._directory = directory

    def shake_hands(self) -> None:
        context = {
            "taskid": 3,
            "componentid": "split",
            "source->stream->fields": {"words": {"default": ["line"]}},
        }
        self.say(Handshake(conf={"topology.name": "count"}, context=context, pid_dir=str(self._directory)))
        assert self.hear() == Pid(pid=self.process.pid)

    def say(self, *messages: Message) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(self._codec.encode(message, "test") for message in messages))

    def hear(self) -> Message:
        """Give the next message that is no line of the log."""
        assert self.process.stdout is not None
        while not self._heard:
            data = os.read(self.process.stdout.fileno(), 65_536)
            assert data, f"the component ended: {(self._directory / 'errors').read_text()}"
            found: list[Any] = self._decoder.feed(data)
            assert not [each for each in found if isinstance(each, InvalidOutput)]
            self._heard += [message for message in map(parse, found) if not isinstance(message, Log)]
        return self._heard.pop(0)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(60)
        for pipe in (self.process.stdin, self.process.stdout, self._errors):
            if pipe is not None:
                pipe.close()


@pytest.fixture(params=sorted(CODECS))
def codec(request: pytest.FixtureRequest) -> Codec:
    return CODECS[request.param]


@contextmanager
def started(program: str, codec: Codec, directory: Path) -> Iterator[Component]:
    component = Component(program, codec, directory)
    try:
        component.shake_hands()
        yield component
    finally:
        component.close()


@pytest.fixture
def bolt(codec: Codec, tmp_path: Path) -> Iterator[Component]:
    with started(BOLT, codec, tmp_path) as component:
        yield component


@pytest.fixture
def spout(codec: Codec, tmp_path: Path) -> Iterator[Component]:
    with started(SPOUT, codec, tmp_path) as component:
        yield component


def line(tuple_id: str, *values: Any) -> TupleIn:
    return TupleIn(id=tuple_id, component="words", stream="default", task=1, values=list(values))


def test_a_bolt_of_pystorm_is_given_tuples_heartbeats_ticks_and_task_ids(bolt: Component) -> None:
    bolt.say(line("1", "a línea"), heartbeat("2"), tick("3", 10), line("4", "asks"), TaskIds((5, 6)))
    assert [bolt.hear() for _ in range(8)] == [
        Emit(values=["a", 1], anchors=["1"], need_task_ids=False),
        Emit(values=["línea", 5], anchors=["1"], need_task_ids=False),
        Ack(id="1"),
        Sync(),
        Emit(values=["tick"], anchors=["3"], need_task_ids=False),
        Ack(id="3"),
        Emit(values=["asks", 4], anchors=["4"]),
        Ack(id="4"),
    ]


def test_a_bolt_of_pystorm_that_raises_is_understood(bolt: Component) -> None:
    bolt.say(line("1", 5), line("2", "fine"))
    error = bolt.hear()
    assert isinstance(error, Error)
    assert "object has no attribute 'split'" in error.msg
    assert [bolt.hear() for _ in range(4)] == [
        Sync(),
        Fail(id="1"),
        Emit(values=["fine", 4], anchors=["2"], need_task_ids=False),
        Ack(id="2"),
    ]


def test_a_spout_of_pystorm_is_asked_and_told(spout: Component) -> None:
    spout.say(Next(), Fail(id=7), Ack(id=7))
    emit = Emit(values=["word"], id=7, need_task_ids=False)
    assert [spout.hear() for _ in range(5)] == [emit, Sync(), emit, Sync(), Sync()]
