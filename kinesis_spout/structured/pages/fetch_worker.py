"""A process that calls GetRecords and makes columns of the replies, for a reader that has too much to do.

It is started as ``python -m kinesis_spout.structured.pages.fetch_worker DESCRIPTOR``, with one end of a pair
of sockets, and ends when the other end is closed: so it does not outlive its reader, however that ends.
"""

import pickle
import socket
import sys
from typing import Any, Final, NamedTuple

from kinesis_spout.kinesis import KinesisClientSettings
from kinesis_spout.kinesis.read.arrow import ArrowForm, ArrowPage
from kinesis_spout.kinesis.read.reply_getter import call_get_records
from kinesis_spout.processes.worker_log import print_log_lines
from kinesis_spout.settings.table.spelling import as_option
from kinesis_spout.structured.pages.page_channel import PageChannel

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
    apart = [channel.receive() for _ in range(count)]
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
