"""Coalescing in one process: ``QueueCoordinator`` for threads, ``AsyncQueueCoordinator`` for tasks.

Both are one shell over ``KeyLines``; only the sleeping differs, which is in ``turn``.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Hashable
from copy import copy
from typing import Any, Generic, TypeVar

from kinesis_spout.model.clock import Clock
from kinesis_spout.recipes.coalescing.line import Answer, Event, Move
from kinesis_spout.recipes.coalescing.lines import CoalescingCounts, Ended, KeyLines
from kinesis_spout.recipes.coalescing.turn import (
    Admission,
    Admitted,
    AsyncTurn,
    BlockingCoordinator,
    BlockingTurn,
    Unhandled,
    check_lease,
    log_unhandled,
)

KeyT = TypeVar("KeyT", bound=Hashable)
PayloadT = TypeVar("PayloadT")


class _Waiting:
    __slots__ = ("key", "promotion", "token", "until", "woken")

    def __init__(self, key: Hashable, token: int, until: float | None, woken: Any) -> None:
        self.key = key
        self.token = token
        self.until = until
        self.woken = woken
        self.promotion: Ended | None = None
        """The end that gave it its turn; set under the lock."""


class _LocalShell:
    """A ``Shell`` over ``KeyLines``. Mutable; its lock guards the lines and the waiting requests."""

    def __init__(
        self,
        lease_seconds: float,
        unhandled: Unhandled,
        monotonic: Callable[[], float],
        event: Callable[[], threading.Event | asyncio.Event],
    ) -> None:
        check_lease(lease_seconds)
        self._lines = KeyLines(lease_seconds)
        self._lock = threading.Lock()
        self._waiting: dict[int, _Waiting] = {}
        self._unhandled = unhandled
        self._monotonic = monotonic
        self._event = event

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def counts(self) -> CoalescingCounts:
        with self._lock:
            return copy(self._lines.counts)

    def ask(self, key: Any, payload: Any, timeout_seconds: float | None, move: Move) -> Admitted | _Waiting:
        with self._lock:
            now = self._monotonic()
            answer, token, ended = self._lines.request(key, payload, now, move=move)
            waiting = None
            if answer is Answer.WAIT:
                until = None if timeout_seconds is None else now + timeout_seconds
                waiting = self._waiting[token] = _Waiting(key, token, until, self._event())
            back = self._carry_out(*ended) if ended else ()
        self._hand_back(back)
        if waiting is not None:
            return waiting
        if answer is Answer.ACCEPT:
            return Admitted(Admission.ACCEPTED, token, payload)
        return Admitted(Admission.DECLINED, token)

    def look(self, waiting: _Waiting) -> Admitted | float:
        back: tuple[Ended, ...] = ()
        with self._lock:
            now = self._monotonic()
            expired = None if waiting.promotion else self._lines.expire(waiting.key, now)
            if expired is not None:
                back = self._carry_out(expired)
            answer = self._answer(waiting, now)
        self._hand_back(back)
        return answer

    def _answer(self, waiting: _Waiting, now: float) -> Admitted | float:
        until = waiting.until
        if waiting.promotion is not None:
            del self._waiting[waiting.token]
            return Admitted(Admission.WAITED, waiting.token, waiting.promotion.payload)
        if until is not None and now >= until:
            self._lines.withdraw(waiting.key, waiting.token)
            del self._waiting[waiting.token]
            return Admitted(Admission.TIMED_OUT, waiting.token)
        lease_until = self._lines.deadline(waiting.key)
        assert lease_until is not None
        return min(lease_until, lease_until if until is None else until) - now

    def give_up(self, waiting: _Waiting) -> None:
        key, token = waiting.key, waiting.token
        with self._lock:
            self._waiting.pop(token, None)
            if self._lines.withdraw(key, token):
                return
            promotion = waiting.promotion
            ended = self._lines.end(key, token, Event.FAILED, self._monotonic())
            back = self._carry_out(ended)
            if ended.answer is Answer.LEAVE and promotion is not None and promotion.declined:
                back = (promotion,)
                self._lines.counts.handed_back += 1
        self._hand_back(back)

    def end(self, key: Any, token: int, event: Event) -> Ended:
        with self._lock:
            ended = self._lines.end(key, token, event, self._monotonic())
            if ended.answer is Answer.LEAVE:
                return ended
            back = self._carry_out(ended)
        self._hand_back(back)
        return ended

    def renew(self, key: Any, token: int) -> bool:
        with self._lock:
            return self._lines.renew(key, token, self._monotonic())

    def _carry_out(self, *ended: Ended) -> tuple[Ended, ...]:
        """Wake the requests whose turns have come; returns what is to be handed back, without the lock."""
        for each in ended:
            if each.answer is Answer.PROMOTE:
                waiting = self._waiting[each.token]
                waiting.promotion = each
                waiting.woken.set()
        back = tuple(each for each in ended if each.answer is Answer.HAND_BACK)
        self._lines.counts.handed_back += len(back)
        return back

    def _hand_back(self, ended: tuple[Ended, ...]) -> None:
        for each in ended:
            self._unhandled(each.key, each.payload)


class _InProcess(Generic[KeyT, PayloadT]):
    _shell: _LocalShell

    @property
    def counts(self) -> CoalescingCounts:
        """Counts since the start, as a copy."""
        return self._shell.counts

    def __len__(self) -> int:
        """Return the number of keys with a turn under way."""
        return len(self._shell)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(keys={len(self)}, {self.counts!r})"


class QueueCoordinator(_InProcess[KeyT, PayloadT], BlockingCoordinator[KeyT, PayloadT]):
    """Lets one request work at a key, and at most one wait; all others return at once. Thread-safe. Mutable.

    The waiting request gets the newest payload of all that came meanwhile. Nothing polls: it is woken when
    its turn comes, when the lease of the current turn is over, or at its time-out.

    Args:
        lease_seconds: how long a turn is exclusive; ``turn.renew()`` restarts it. After that a request that
            waits or comes takes over, and the end of the earlier turn is refused.
        unhandled: called with (key, payload) when others were declined in favour of a payload that will not
            be handled any more: the handler failed before it came to what was left to it. Logged by default.
            Called without a lock, by the thread that finds it.
        clock: for the monotonic time.

    Raises:
        InvalidConfig: ``lease_seconds`` is not above 0.
    """

    def __init__(
        self,
        *,
        lease_seconds: float = 60.0,
        unhandled: Unhandled = log_unhandled,
        clock: Clock | None = None,
    ) -> None:
        monotonic = clock.monotonic if clock else time.monotonic
        self._shell = _LocalShell(lease_seconds, unhandled, monotonic, threading.Event)

    def request(
        self, key: KeyT, payload: PayloadT, *, timeout_seconds: float | None = None
    ) -> BlockingTurn[PayloadT]:
        """Ask for a turn; ``with`` makes the request, and waits for it if needed."""
        return BlockingTurn(self._shell, key, payload, timeout_seconds)


class AsyncQueueCoordinator(_InProcess[KeyT, PayloadT]):
    """``QueueCoordinator`` for the tasks of one event loop. Mutable.

    A task can be cancelled at any moment: one that works fails its turn, one that waits gives up.

    Args:
        lease_seconds: as there.
        unhandled: as there. Called on the event loop.

    Raises:
        InvalidConfig: ``lease_seconds`` is not above 0.
    """

    def __init__(self, *, lease_seconds: float = 60.0, unhandled: Unhandled = log_unhandled) -> None:
        self._shell = _LocalShell(lease_seconds, unhandled, _loop_time, asyncio.Event)

    def request(
        self, key: KeyT, payload: PayloadT, *, timeout_seconds: float | None = None
    ) -> AsyncTurn[PayloadT]:
        """Ask for a turn; ``async with`` makes the request. The arguments are those of ``QueueCoordinator``."""
        return AsyncTurn(self._shell, key, payload, timeout_seconds)

    async def run(
        self,
        key: KeyT,
        payload: PayloadT,
        handle: Callable[[PayloadT], Awaitable[object]],
        *,
        timeout_seconds: float | None = None,
    ) -> Admission:
        """Request a turn, and await ``handle(newest)`` in it, if it comes. Raises what that raises."""
        async with self.request(key, payload, timeout_seconds=timeout_seconds) as turn:
            for newest in turn:
                await handle(newest)
        return turn.admission


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
