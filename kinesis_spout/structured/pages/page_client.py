"""Fetches pages from the reader; used by tasks. A Python worker keeps its connections for its next tasks."""

import logging
import os
import time
from collections.abc import Generator, Sequence
from typing import Final

import pyarrow as pa

from kinesis_spout.structured.pages.page_buffer import Segment
from kinesis_spout.structured.pages.page_channel import PageChannel, PageServerAddress

_FORGIVE_AFTER_SECONDS: Final = 60.0
"""How long not to retry an unreachable server: each try can cost a time-out."""
_ANSWER_SECONDS: Final = 60.0
"""How long a task waits for a page, before it reads Kinesis instead."""
_KEPT_CONNECTIONS: Final = 8
"""A Python worker outlives many queries, each with its own server."""

_log = logging.getLogger(__name__)


def fetch_segments(
    address: PageServerAddress, segments: Sequence[Segment], schema: pa.Schema, *, rows_at_once: int
) -> Generator[pa.RecordBatch, None, None]:
    """Yield rows up to the first missing segment. A connection not read to its end is not reused."""
    channel = _connections.take(address)
    if channel is None:
        return
    is_kept = False
    try:
        channel.ask(segments, rows_at_once)
        for number, segment in enumerate(segments, 1):
            left = segment.rows
            while left > 0:
                body = channel.receive()
                batch = pa.ipc.read_record_batch(body, schema) if body.size else None
                left -= segment.rows if batch is None else batch.num_rows
                if number == len(segments) and left <= 0:
                    _connections.put_back(address, channel)
                    is_kept = True
                if batch is None:
                    return
                yield batch
    except OSError as error:
        _log.warning("the reader no longer serves its pages, reading Kinesis again: %r", error)
    finally:
        if not is_kept:
            channel.close()


class _Connections:
    """This worker's idle connections. Mutable; a Python worker runs one task at a time."""

    def __init__(self) -> None:
        self._idle: dict[PageServerAddress, PageChannel] = {}
        self._unreachable: dict[PageServerAddress, float] = {}

    def take(self, address: PageServerAddress) -> PageChannel | None:
        """None if the server cannot be reached."""
        idle = self._idle.pop(address, None)
        if idle is not None:
            if idle.is_quiet():
                return idle
            idle.close()  # the server ended it: nothing was asked for long, or others needed its slot
        if time.monotonic() < self._unreachable.get(address, 0.0):
            return None
        try:
            return PageChannel.connected(address, wait_seconds=_ANSWER_SECONDS)
        except OSError as error:
            _log.warning(
                "the reader's pages at %s:%d cannot be reached, reading Kinesis again (twice the read traffic; "
                "set pageServerHost to an address of the driver that executors reach): %r",
                address.host,
                address.port,
                error,
            )
            now = time.monotonic()
            self._unreachable = {known: until for known, until in self._unreachable.items() if until > now}
            self._unreachable[address] = now + _FORGIVE_AFTER_SECONDS
            return None

    def put_back(self, address: PageServerAddress, channel: PageChannel) -> None:
        """Keep an idle connection, and close the least recently used one if there are too many."""
        self._idle[address] = channel
        while len(self._idle) > _KEPT_CONNECTIONS:
            self._idle.pop(next(iter(self._idle))).close()

    def forget(self) -> None:
        while self._idle:
            self._idle.popitem()[1].close()


_connections = _Connections()

if hasattr(os, "register_at_fork"):
    # Two processes that ask on one connection would get each other's pages.
    os.register_at_fork(after_in_child=_connections.forget)
