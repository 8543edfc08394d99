"""Other processes call GetRecords and decode the replies, where one core is not enough.

A reader's threads wait for the network concurrently, but decode one after the other. That is enough for some
hundred shards; beyond, each of ``fetchProcesses`` processes gets one call at a time. The reader keeps all
state of a shard, so any process can make any call; one that ends is replaced, and its call is repeated.

A process is this module with one end of a pair of sockets. It ends when the other end is closed: so it does not
outlive its reader, however that ends.
"""

import logging
import os
import pickle
import queue
import socket
import subprocess
import sys
from typing import Any, Final, NamedTuple

from kinesis_spout.kinesis import KinesisClientSettings
from kinesis_spout.kinesis.read.arrow import ArrowForm, ArrowPage
from kinesis_spout.kinesis.read.reply_getter import call_get_records
from kinesis_spout.model.errors import InvalidConfig, Unavailable
from kinesis_spout.processes.worker_log import print_log_lines
from kinesis_spout.settings.table.spelling import as_option
from kinesis_spout.structured.pages.page_channel import PageChannel

_START_SECONDS: Final = 60.0
"""How long a process may take to start, on top of the time-outs of its call."""
_END_SECONDS: Final = 5.0

_log = logging.getLogger(__name__)


class FetchProcesses:
    """At most so many processes, started when needed. Thread-safe."""

    def __init__(self, count: int, settings: KinesisClientSettings) -> None:
        if os.name != "posix":
            raise InvalidConfig(f"fetchProcesses: expected 0 on this system ({os.name}), got {count}")
        self._settings = settings
        self._is_closed = False
        # The last one used comes first, so that no more run than needed.
        self._free: queue.LifoQueue[_FetchProcess | None] = queue.LifoQueue()
        for _ in range(count):
            self._free.put(None)
        self._count = count

    def __call__(self, iterator: str, limit: int, form: ArrowForm) -> ArrowPage:
        """See ``FetchArrow``; waits for a free process. Also raises Unavailable if the process ended."""
        process = self._free.get()
        try:
            if self._is_closed:
                raise Unavailable("the reader is closed")
            if process is None:
                process = _FetchProcess(self._settings)
            return process.fetch(iterator, limit, form)
        except OSError as error:
            if process is not None:
                process.close()
                process = None
            raise Unavailable(
                f"a fetch process ended or did not answer; another is started: {error!r}"
            ) from error
        finally:
            self._free.put(process)

    def close(self) -> None:
        """End the processes after the calls that are under way. May be called twice."""
        self._is_closed = True
        for _ in range(self._count):
            process = self._free.get()
            if process is not None:
                process.close()
        for _ in range(self._count):
            self._free.put(None)


class _FetchProcess:
    def __init__(self, settings: KinesisClientSettings) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            descriptor = theirs.fileno()
            self._process = subprocess.Popen(  # noqa: S603 - a module of this package
                [sys.executable, "-m", "kinesis_spout.structured.pages.fetch_processes", str(descriptor)],
                pass_fds=[descriptor],
                stdin=subprocess.DEVNULL,
                # The process can import what this one can.
                env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
        seconds = _START_SECONDS + settings.connect_timeout_seconds + settings.read_timeout_seconds
        self._channel = PageChannel(ours, wait_seconds=seconds)
        self._channel.send(pickle.dumps(settings))

    def fetch(self, iterator: str, limit: int, form: ArrowForm) -> ArrowPage:
        self._channel.send(pickle.dumps(FetchRequest(iterator, limit, form)))
        return receive_outcome(self._channel)

    def close(self) -> None:
        self._channel.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            _log.warning("fetch process %d does not end by itself; it is killed", self._process.pid)
            self._process.kill()
            self._process.wait()


_APART_BYTES: Final = 64 * 1024
"""Larger buffers are sent separately, without a copy; smaller ones as a part of the outcome."""


class FetchRequest(NamedTuple):
    iterator: str
    limit: int
    form: ArrowForm


def serve(channel: PageChannel) -> None:
    """Answer requests until the other end closes the channel. The first message has the client's settings."""
    try:
        settings: KinesisClientSettings = _received(channel)
        while True:
            _send(channel, _outcome(settings, _received(channel)))
    except ConnectionError:
        return


def receive_outcome(channel: PageChannel) -> ArrowPage:
    """Wait for the reply. Raises the error of the call, or OSError if the process ended."""
    content, count = _received(channel)
    apart = [channel.receive_buffer() for _ in range(count)]
    outcome: ArrowPage | Exception = pickle.loads(content, buffers=apart)  # noqa: S301 - as below
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _outcome(settings: KinesisClientSettings, request: FetchRequest) -> ArrowPage | Exception:
    form = request.form
    try:
        return call_get_records(
            settings.connect(),
            request.iterator,
            request.limit,
            form,
            stream=form.stream,
            shard_id=form.shard_id,
        )
    except Exception as error:  # noqa: BLE001 - not hidden: the reader raises it
        return error


def _send(channel: PageChannel, outcome: ArrowPage | Exception) -> None:
    apart: list[pickle.PickleBuffer] = []

    def is_small(buffer: pickle.PickleBuffer) -> bool:
        if buffer.raw().nbytes < _APART_BYTES:
            return True
        apart.append(buffer)
        return False

    try:
        content = pickle.dumps(outcome, protocol=5, buffer_callback=is_small)
    except Exception:  # noqa: BLE001 - what some errors carry cannot travel
        content = pickle.dumps(RuntimeError(repr(outcome)))
    channel.send(pickle.dumps((content, len(apart))))
    for buffer in apart:
        channel.send(buffer)


def _received(channel: PageChannel) -> Any:
    return pickle.loads(channel.receive())  # noqa: S301 - only the reader has the other end


if __name__ == "__main__":
    print_log_lines(spell=as_option)
    serve(PageChannel(socket.socket(fileno=int(sys.argv[1])), wait_seconds=None))
