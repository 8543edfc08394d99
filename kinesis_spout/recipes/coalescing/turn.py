"""A turn at a key, as the caller that requested it sees it: the same for threads, tasks and processes.

with coordinator.request(key, payload) as turn:
    for newest in turn:      # not at all, if the request was declined or waited in vain
        handle(newest)
"""

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from enum import StrEnum
from types import TracebackType
from typing import Any, Final, Generic, NamedTuple, Protocol, Self, TypeVar

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.recipes.coalescing.line import Answer, Event, Move, request, request_own
from kinesis_spout.recipes.coalescing.lines import Ended

KeyT = TypeVar("KeyT")
PayloadT = TypeVar("PayloadT")

Unhandled = Callable[[Any, Any], None]
"""Called with a key and a payload in favour of which others were declined, and which will not be handled."""

_log = logging.getLogger(__name__)


class Admission(StrEnum):
    """The answer to a request, as its caller sees it."""

    ACCEPTED = "accepted"
    """Its turn came at once."""
    WAITED = "waited"
    """Its turn came when the one before had ended."""
    DECLINED = "declined"
    """A waiting request has its payload now, and will handle that, or a newer one. If the one that works made
    the request itself, it will."""
    TIMED_OUT = "timed out"
    """It gave up waiting. If others were declined in its favour, the newest payload is left to the one at work."""


_WITH_TURN: Final = frozenset({Admission.ACCEPTED, Admission.WAITED})


class Admitted(NamedTuple):
    """The answer to a request, when its wait is over."""

    admission: Admission
    token: Any
    payload: Any = None
    """The newest, if its turn has come."""


class Shell(Protocol):
    """The coordinator as a turn sees it: the lines, and the requests that wait in them. It never sleeps."""

    def ask(self, key: Any, payload: Any, timeout_seconds: float | None, move: Move) -> Any:
        """Make the request by the move. Returns ``Admitted``, or what waits: its ``woken`` is an event."""
        ...

    def look(self, waiting: Any) -> Admitted | float:
        """Return the answer if the wait is over, or else how long to sleep at most before the next look."""
        ...

    def give_up(self, waiting: Any) -> None:
        """Leave, even if its turn has come by now."""
        ...

    def end(self, key: Any, token: Any, event: Event) -> Ended: ...

    def renew(self, key: Any, token: Any) -> bool: ...


class Turn(Generic[PayloadT]):
    """One request, and the turn that it leads to. Mutable; for one use, by one thread or task."""

    def __init__(self, shell: Shell, key: object, payload: PayloadT, timeout_seconds: float | None) -> None:
        self._shell = shell
        self._key = key
        self._payload = payload
        self._timeout_seconds = timeout_seconds
        self._token: Any = None
        self._who: object = None
        self._admission: Admission | None = None
        self._has_turn = False
        self._was_refused = False

    @property
    def admission(self) -> Admission:
        """The answer to the request.

        Raises:
            RuntimeError: it was not made yet: ``with`` makes it.
        """
        if self._admission is None:
            raise RuntimeError("expected the turn inside its `with` block: the request is made there")
        return self._admission

    @property
    def was_evicted(self) -> bool:
        """True if the end of a turn was refused: its lease was over, and another turn may have begun."""
        return self._was_refused

    def __bool__(self) -> bool:
        """Return whether this request has its turn now."""
        return self._has_turn

    def __iter__(self) -> Iterator[PayloadT]:
        """Yield what is to be handled: one payload, the newest; then another, if one was left to this turn.

        Asking for the next one means that the one before was handled. An exception in between ends the turn
        as failed.
        """
        while self._has_turn:
            yield self._payload
            if self._has_turn:
                self._end(Event.DONE)

    def renew(self) -> bool:
        """Restart the lease; False if the turn is another request's by now, so that this one should stop."""
        return self._has_turn and self._shell.renew(self._key, self._token)

    def is_at_work(self, shell: Shell, key: object, who: object) -> bool:
        """Return whether a thread or task is in this turn, at a key."""
        return self._has_turn and self._who == who and self._shell is shell and self._key == key

    def _ask(self, who: object) -> Any:
        """Make the request; the one that works at the key must not wait for itself."""
        self._who = who
        is_own = any(turn.is_at_work(self._shell, self._key, who) for turn in _turns.get())
        move = request_own if is_own else request
        return self._shell.ask(self._key, self._payload, self._timeout_seconds, move)

    def _take(self, admitted: Admitted) -> None:
        self._admission, self._token = admitted.admission, admitted.token
        self._has_turn = admitted.admission in _WITH_TURN
        if self._has_turn:
            self._payload = admitted.payload
            _turns.set((*_turns.get(), self))

    def _end(self, event: Event) -> None:
        """Report how the turn ended: it is over, or continues with another payload."""
        self._has_turn = False
        ended = self._shell.end(self._key, self._token, event)
        self._was_refused = self._was_refused or ended.answer is Answer.REFUSE
        if ended.answer is Answer.GO_ON:
            self._has_turn, self._token, self._payload = True, ended.token, ended.payload

    def _close(self, error: BaseException | None) -> None:
        if self._admission in _WITH_TURN:
            _turns.set(tuple(turn for turn in _turns.get() if turn is not self))
        if self._has_turn:
            self._end(Event.DONE if error is None else Event.FAILED)
        if self._has_turn:
            self._end(Event.FAILED)  # the loop was left: what was left to this turn is not handled


class BlockingTurn(Turn[PayloadT]):
    """A turn that a thread waits for."""

    def __enter__(self) -> Self:
        asked = self._ask(threading.get_ident())
        self._take(asked if isinstance(asked, Admitted) else self._wait(asked))
        return self

    def _wait(self, waiting: Any) -> Admitted:
        try:
            while not isinstance(found := self._shell.look(waiting), Admitted):
                waiting.woken.wait(found)
        except BaseException:  # such as Ctrl-C
            self._shell.give_up(waiting)
            raise
        return found

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(error)


class AsyncTurn(Turn[PayloadT]):
    """A turn that a task waits for. The loop in its ``async with`` is a plain ``for``."""

    async def __aenter__(self) -> Self:
        asked = self._ask(asyncio.current_task())
        self._take(asked if isinstance(asked, Admitted) else await self._wait(asked))
        return self

    async def _wait(self, waiting: Any) -> Admitted:
        try:
            while not isinstance(found := self._shell.look(waiting), Admitted):
                with suppress(TimeoutError):
                    async with asyncio.timeout(found):
                        await waiting.woken.wait()
        except BaseException:  # it was cancelled
            self._shell.give_up(waiting)
            raise
        return found

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(error)


_turns: ContextVar[tuple[Turn[Any], ...]] = ContextVar("kinesis_spout_turns", default=())
"""The turns that this thread or task is in, and perhaps those of the one that made it."""


class BlockingCoordinator(ABC, Generic[KeyT, PayloadT]):
    """Makes requests whose callers block until their turn comes."""

    @abstractmethod
    def request(
        self, key: KeyT, payload: PayloadT, *, timeout_seconds: float | None = None
    ) -> BlockingTurn[PayloadT]:
        """Ask for a turn; ``with`` makes the request, and waits for it if needed.

        Args:
            key: only one turn at a time works at it.
            payload: its newest state, to the caller's knowledge.
            timeout_seconds: the longest wait; 0: none, None: no limit.
        """

    def run(
        self,
        key: KeyT,
        payload: PayloadT,
        handle: Callable[[PayloadT], object],
        *,
        timeout_seconds: float | None = None,
    ) -> Admission:
        """Request a turn, and call ``handle(newest)`` in it, if it comes. Raises what that raises."""
        with self.request(key, payload, timeout_seconds=timeout_seconds) as turn:
            for newest in turn:
                handle(newest)
        return turn.admission


def check_lease(lease_seconds: float) -> None:
    """Refuse a lease that is over at once."""
    if not (isinstance(lease_seconds, (int, float)) and lease_seconds > 0):
        raise InvalidConfig(f"lease_seconds: expected a number above 0, got {lease_seconds!r}")


def log_unhandled(key: object, payload: object) -> None:
    """Log that a payload is not handled. The payload itself is not logged."""
    del payload
    _log.warning("nobody is there for the newest payload of %r, for which others were declined", key)
