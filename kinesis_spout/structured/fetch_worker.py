"""A process that calls GetRecords and makes columns of the replies, for a reader that has too much to do.

It is started as ``python -m kinesis_spout.structured.fetch_worker DESCRIPTOR``, with one end of a pair of sockets,
and ends when the other end is closed: so it does not outlive its reader, however that ends.
"""

import pickle
import socket
import sys
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pyarrow as pa

from kinesis_spout.clock import SystemClock
from kinesis_spout.kinesis import KinesisClientSettings
from kinesis_spout.kinesis.arrow import ArrowForm, ArrowReply
from kinesis_spout.kinesis.get_records import call_get_records, place_of
from kinesis_spout.shared_memory import SharedMemoryPool
from kinesis_spout.structured.options.spelling import as_option
from kinesis_spout.structured.page_channel import PageChannel
from kinesis_spout.worker_log import print_log_lines

_NO_COLUMNS: Final = pa.RecordBatch.from_pydict({})
"""In the place of a page whose memory follows."""


class FetchRequest(NamedTuple):
    """A call to make."""

    iterator: str
    limit: int
    form: ArrowForm
    may_share: bool
    """Whether the reader takes memory that is passed on."""


def serve(channel: PageChannel) -> None:
    """Answer requests until the other end closes the channel. The first message has the client's settings."""
    pool = SharedMemoryPool(max_bytes=0, clock=SystemClock())  # the reader keeps what it gets
    try:
        settings: KinesisClientSettings = _received(channel)
        while True:
            request: FetchRequest = _received(channel)
            _answer(channel, _outcome(settings, request), pool if request.may_share else None)
            pool.trim()
    except (EOFError, ConnectionError):
        return


def receive_outcome(channel: PageChannel) -> ArrowReply:
    """Wait for what became of a request.

    Raises:
        What the call raised there.
        EOFError, OSError: the process ended, or does not answer.
    """
    outcome: ArrowReply | Exception = _received(channel)
    if isinstance(outcome, Exception):
        raise outcome
    if outcome.page.batch.num_columns:
        return outcome
    memory = channel.receive().memory
    assert memory is not None, "a page without columns is followed by its memory"
    return replace(outcome, page=replace(outcome.page, batch=memory.batch(), memory=memory))


def _outcome(settings: KinesisClientSettings, request: FetchRequest) -> ArrowReply | Exception:
    form = request.form
    place = place_of(form.stream, form.shard_id)
    try:
        return call_get_records(settings.connect(), request.iterator, request.limit, form, place=place)
    except Exception as error:  # noqa: BLE001 - not hidden: the reader raises it
        return error


def _answer(channel: PageChannel, outcome: ArrowReply | Exception, pool: SharedMemoryPool | None) -> None:
    if isinstance(outcome, Exception):
        channel.send(_portable(outcome))
        return
    memory = None if pool is None else pool.copy(outcome.page.batch)
    if memory is None:
        channel.send(pickle.dumps(outcome))
    else:
        channel.send(pickle.dumps(replace(outcome, page=replace(outcome.page, batch=_NO_COLUMNS))))
        channel.give(memory)


def _received(channel: PageChannel) -> Any:
    return pickle.loads(channel.receive().body)  # noqa: S301 - nobody else has the other end


def _portable(error: Exception) -> bytes:
    try:
        return pickle.dumps(error)
    except Exception:  # noqa: BLE001 - what some errors carry cannot travel
        return pickle.dumps(RuntimeError(repr(error)))


if __name__ == "__main__":
    print_log_lines(spell=as_option)
    end = PageChannel(socket.socket(fileno=int(sys.argv[1])))
    end.wait_at_most(None)
    serve(end)
