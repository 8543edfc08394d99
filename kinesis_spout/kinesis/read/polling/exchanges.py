"""Calls under way on the loop's sockets.

A connection is watched from its first call on: nothing comes between two calls, so a poll costs no registration.
One that the endpoint closes meanwhile, or over which something comes that nobody asked for, is closed.
"""

import selectors
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from botocore.exceptions import ReadTimeoutError

from kinesis_spout.kinesis.read.polling.steps import GetRecordsCall
from kinesis_spout.kinesis.read.socket_loop import SocketLoop
from kinesis_spout.kinesis.wire.connections import Want
from kinesis_spout.model.clock import Clock

if TYPE_CHECKING:
    from kinesis_spout.kinesis.wire.calls import Exchange

_LOOK_EVERY_SECONDS: Final = 1.0
"""How often silent calls are looked for."""
_EVENTS: Final = {Want.READ: selectors.EVENT_READ, Want.WRITE: selectors.EVENT_WRITE}


class Done(Protocol):
    """Takes the answer of a call, or its error."""

    def __call__(self, answer: Any = None, error: Exception | None = None) -> None: ...


@dataclass(slots=True, kw_only=True, eq=False)
class _UnderWay:
    """Mutable."""

    call: GetRecordsCall
    exchange: "Exchange"
    done: Done
    repeat: Callable[[], None]
    silent_since: float
    """Monotonic."""


class Exchanges:
    """Mutable; for the loop's thread alone."""

    def __init__(self, loop: SocketLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._under_way: dict[int, _UnderWay] = {}
        """By descriptor."""
        self._watched: dict[int, tuple[object, int, Callable[[], None]]] = {}
        """By descriptor: which connection, for what, and what closes it unless a call uses it."""
        self._is_looking = False

    def make(
        self, call: GetRecordsCall, exchange: "Exchange", done: Done, repeat: Callable[[], None]
    ) -> None:
        """Carry a call out, and give its answer or its error to ``done``, possibly at once.

        ``repeat`` is called instead if the call must be made by the client, on another connection. A call fails
        if nothing is sent or received for the client's read time-out, or a second longer.
        """
        descriptor = exchange.fileno()
        self._under_way[descriptor] = _UnderWay(
            call=call,
            exchange=exchange,
            done=done,
            repeat=repeat,
            silent_since=self._clock.monotonic(),
        )
        if not self._is_looking:
            self._is_looking = True
            self._loop.at(self._clock.monotonic() + _LOOK_EVERY_SECONDS, self._look_for_silent)
        self._advance(descriptor)

    def abandon_all(self) -> None:
        """Close the connections of all calls under way; their ``done`` is not called. After the loop's end."""
        for each in self._under_way.values():
            each.exchange.abandon()
        self._under_way.clear()

    def _advance(self, descriptor: int) -> None:
        under_way = self._under_way.get(descriptor)
        if under_way is None:
            drop = self._watched[descriptor][2]
            self._look_away(descriptor)
            drop()
            return
        exchange = under_way.exchange
        want, answer, error = None, None, None
        try:
            want = exchange.advance()
            if want is None and not exchange.is_stale:
                answer = exchange.result()
        except Exception as raised:  # noqa: BLE001 - not hidden: who asked decides what it means
            error = raised
        if want is not None:
            under_way.silent_since = self._clock.monotonic()
            self._watch(descriptor, exchange, _EVENTS[want])
            return
        del self._under_way[descriptor]
        if exchange.is_stale or (error is not None and exchange.is_refused):
            under_way.repeat()
        else:
            under_way.done(answer, error)

    def _watch(self, descriptor: int, exchange: "Exchange", events: int) -> None:
        if self._watched.get(descriptor, ())[:2] == (exchange.connection, events):
            return
        if descriptor in self._watched:
            self._look_away(descriptor)
        self._loop.watch(descriptor, partial(self._advance, descriptor), events)
        self._watched[descriptor] = exchange.connection, events, exchange.drop

    def _look_away(self, descriptor: int) -> None:
        del self._watched[descriptor]
        self._loop.unwatch(descriptor)

    def _look_for_silent(self) -> None:
        now = self._clock.monotonic()
        for descriptor, each in list(self._under_way.items()):
            if now - each.silent_since > each.call.read_timeout_seconds:
                del self._under_way[descriptor]
                each.exchange.abandon()
                url = each.call.client.meta.endpoint_url
                each.done(error=ReadTimeoutError(endpoint_url=url, error=TimeoutError("timed out")))
        self._is_looking = bool(self._under_way)
        if self._is_looking:
            self._loop.at(now + _LOOK_EVERY_SECONDS, self._look_for_silent)
