"""``AsyncQueueCoordinator``: coalescing for the tasks of one event loop."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from copy import copy
from typing import Generic, TypeVar

from kinesis_spout.recipes.coalescing.counts import CoalescingCounts
from kinesis_spout.recipes.coalescing.line import Move
from kinesis_spout.recipes.coalescing.lines import Ended, Lines
from kinesis_spout.recipes.coalescing.table import Answer, Event
from kinesis_spout.recipes.coalescing.turn import (
    Admission,
    Admitted,
    AsyncTurn,
    Shell,
    Unhandled,
    check_lease,
    log_unhandled,
)

KeyT = TypeVar("KeyT", bound=Hashable)
PayloadT = TypeVar("PayloadT")


class AsyncQueueCoordinator(Generic[KeyT, PayloadT]):
    """What ``QueueCoordinator`` is for threads, for the tasks of one event loop. Mutable.

    A task may be cancelled at any moment: one that works fails its turn, one that waits gives up.

    Args:
        lease_seconds: as there.
        unhandled: as there. Called on the event loop.

    Raises:
        InvalidConfig: ``lease_seconds`` is not above 0.
    """

    def __init__(self, *, lease_seconds: float = 60.0, unhandled: Unhandled = log_unhandled) -> None:
        check_lease(lease_seconds)
        self._lines = Lines(lease_seconds)
        self._waiting: dict[int, asyncio.Future[Ended]] = {}
        self._unhandled = unhandled
        self._shell = Shell(admit=self._admit, end=self._end, renew=self._renew)

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

    @property
    def counts(self) -> CoalescingCounts:
        """What happened since the start, as a copy."""
        return copy(self._lines.counts)

    def __len__(self) -> int:
        """How many keys somebody works at now."""
        return len(self._lines)

    def __repr__(self) -> str:
        return f"AsyncQueueCoordinator(keys={len(self)}, {self.counts!r})"

    async def _admit(
        self, key: KeyT, payload: PayloadT, timeout_seconds: float | None, move: Move
    ) -> Admitted:
        loop = asyncio.get_running_loop()
        now = loop.time()
        answer, token, ended = self._lines.request(key, payload, now, move=move)
        self._carry_out(*ended)
        if answer is Answer.ACCEPT:
            return Admitted(Admission.ACCEPTED, token, payload)
        if answer is Answer.DECLINE:
            return Admitted(Admission.DECLINED, token)
        promoted = self._waiting[token] = loop.create_future()
        until = None if timeout_seconds is None else now + timeout_seconds
        try:
            came = await self._wait(key, token, promoted, until)
        except BaseException:
            self._give_up(key, token, promoted)
            raise
        finally:
            del self._waiting[token]
        if not came:
            return Admitted(Admission.TIMED_OUT, token)
        return Admitted(Admission.WAITED, token, promoted.result().payload)

    async def _wait(
        self, key: KeyT, token: int, promoted: "asyncio.Future[Ended]", until: float | None
    ) -> bool:
        loop = asyncio.get_running_loop()
        while not promoted.done():
            now = loop.time()
            expired = self._lines.expire(key, now)
            if expired is not None:
                self._carry_out(expired)
            elif until is not None and now >= until:
                self._lines.withdraw(key, token)
                return False
            else:
                lease_until = self._lines.deadline(key)
                assert lease_until is not None
                soonest = min(lease_until, lease_until if until is None else until)
                await asyncio.wait([promoted], timeout=soonest - now)
        return True

    def _give_up(self, key: KeyT, token: int, promoted: "asyncio.Future[Ended]") -> None:
        """Leave, whether it is this one's turn by now or not."""
        if self._lines.withdraw(key, token):
            return
        ended = self._end(key, token, Event.FAILED)
        if ended.answer is Answer.LEAVE and promoted.result().declined:
            self._hand_back(promoted.result())

    def _end(self, key: KeyT, token: int, event: Event) -> Ended:
        ended = self._lines.end(key, token, event, asyncio.get_running_loop().time())
        self._carry_out(ended)
        return ended

    def _renew(self, key: KeyT, token: int) -> bool:
        return self._lines.renew(key, token, asyncio.get_running_loop().time())

    def _carry_out(self, *ended: Ended) -> None:
        for each in ended:
            if each.answer is Answer.PROMOTE:
                assert each.token is not None
                self._waiting[each.token].set_result(each)
            elif each.answer is Answer.HAND_BACK:
                self._hand_back(each)

    def _hand_back(self, ended: Ended) -> None:
        self._lines.counts.handed_back += 1
        self._unhandled(ended.key, ended.payload)
