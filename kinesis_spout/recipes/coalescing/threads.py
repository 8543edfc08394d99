"""``QueueCoordinator``: coalescing for the threads of one process."""

import threading
from collections.abc import Callable, Hashable
from copy import copy
from typing import Generic, TypeVar

from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.recipes.coalescing.counts import CoalescingCounts
from kinesis_spout.recipes.coalescing.line import Move
from kinesis_spout.recipes.coalescing.lines import Ended, Lines
from kinesis_spout.recipes.coalescing.table import Answer, Event
from kinesis_spout.recipes.coalescing.turn import (
    Admission,
    Admitted,
    BlockingTurn,
    Shell,
    Unhandled,
    carry_out,
    check_lease,
    log_unhandled,
)

KeyT = TypeVar("KeyT", bound=Hashable)
PayloadT = TypeVar("PayloadT")


class QueueCoordinator(Generic[KeyT, PayloadT]):
    """Lets one work at a key, and at most one wait; all others go at once. Thread-safe. Mutable.

    The one that waits is given the newest payload of all that came meanwhile. Nobody polls: whoever waits is woken
    when it is its turn, when the lease of the one that works is over, or at its time-out.

    Args:
        lease_seconds: for how long a turn is nobody else's; ``turn.renew()`` begins it anew. After that one that
            waits, or comes, takes over, and the end of the turn before is refused.
        unhandled: is given (key, payload) where others were declined for a payload and nobody is there for it any
            more: the handler failed before it came to what was left to it. Logged unless given. Called without a
            lock, by whichever thread finds it.
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
        check_lease(lease_seconds)
        self._lines = Lines(lease_seconds)
        self._lock = threading.Lock()
        self._waiting: dict[int, _Waiting] = {}
        self._unhandled = unhandled
        self._shell = Shell(admit=self._admit, end=self._end, renew=self._renew)
        self._monotonic = (clock or SystemClock()).monotonic

    def request(
        self, key: KeyT, payload: PayloadT, *, timeout_seconds: float | None = None
    ) -> BlockingTurn[PayloadT]:
        """Ask for a turn; ``with`` makes the request, and waits for it if need be.

        Args:
            key: what nobody else may work at meanwhile.
            payload: the newest state of it, as far as the caller knows.
            timeout_seconds: the longest wait; 0: none, None: as long as it takes.
        """
        return BlockingTurn(self._shell, key, payload, timeout_seconds)

    def run(
        self,
        key: KeyT,
        payload: PayloadT,
        handle: Callable[[PayloadT], object],
        *,
        timeout_seconds: float | None = None,
    ) -> Admission:
        """Request a turn, and call ``handle(newest)`` in it, if it comes. Raises what that raises."""
        return carry_out(self.request(key, payload, timeout_seconds=timeout_seconds), handle)

    @property
    def counts(self) -> CoalescingCounts:
        """What happened since the start, as a copy."""
        with self._lock:
            return copy(self._lines.counts)

    def __len__(self) -> int:
        """How many keys somebody works at now."""
        return len(self._lines)

    def __repr__(self) -> str:
        return f"QueueCoordinator(keys={len(self)}, {self.counts!r})"

    def _admit(self, key: KeyT, payload: PayloadT, timeout_seconds: float | None, move: Move) -> Admitted:
        """Make a request, and wait for its turn."""
        with self._lock:
            now = self._monotonic()
            answer, token, ended = self._lines.request(key, payload, now, move=move)
            waiting = None
            if answer is Answer.WAIT:
                waiting = self._waiting[token] = _Waiting()
            back = self._carry_out(ended) if ended else ()
        self._hand_back(back)
        if answer is Answer.ACCEPT:
            return Admitted(Admission.ACCEPTED, token, payload)
        if waiting is None:
            return Admitted(Admission.DECLINED, token)
        until = None if timeout_seconds is None else now + timeout_seconds
        try:
            came = self._wait(key, token, waiting, until)
        except BaseException:  # such as Ctrl-C
            self._give_up(key, token, waiting)
            raise
        finally:
            del self._waiting[token]
        if not came:
            return Admitted(Admission.TIMED_OUT, token)
        assert waiting.promotion is not None
        return Admitted(Admission.WAITED, token, waiting.promotion.payload)

    def _wait(self, key: KeyT, token: int, waiting: "_Waiting", until: float | None) -> bool:
        """Wait for a turn; False if the time-out comes first, and nobody waits any more then."""
        while True:
            back: tuple[Ended, ...] = ()
            with self._lock:
                now = self._monotonic()
                expired = None if waiting.promotion else self._lines.expire(key, now)
                if expired is not None:
                    back = self._carry_out((expired,))
                if waiting.promotion is not None:
                    seconds = 0.0
                elif until is not None and now >= until:
                    self._lines.withdraw(key, token)
                    return False
                else:
                    lease_until = self._lines.deadline(key)
                    assert lease_until is not None
                    seconds = min(lease_until, lease_until if until is None else until) - now
            self._hand_back(back)
            if waiting.promotion is not None:
                return True
            waiting.woken.wait(seconds)

    def _give_up(self, key: KeyT, token: int, waiting: "_Waiting") -> None:
        """Leave, whether it is this one's turn by now or not."""
        with self._lock:
            if self._lines.withdraw(key, token):
                return
            ended = self._lines.end(key, token, Event.FAILED, self._monotonic())
            back = self._carry_out((ended,))
            promotion = waiting.promotion
            if ended.answer is Answer.LEAVE and promotion is not None and promotion.declined:
                back = (promotion,)
                self._lines.counts.handed_back += 1
        self._hand_back(back)

    def _end(self, key: KeyT, token: int, event: Event) -> Ended:
        with self._lock:
            ended = self._lines.end(key, token, event, self._monotonic())
            if ended.answer is Answer.LEAVE:
                return ended
            back = self._carry_out((ended,))
        self._hand_back(back)
        return ended

    def _renew(self, key: KeyT, token: int) -> bool:
        with self._lock:
            return self._lines.renew(key, token, self._monotonic())

    def _carry_out(self, ended: tuple[Ended, ...]) -> tuple[Ended, ...]:
        """Wake whom turns have come to; gives what is to be handed back, without the lock."""
        for each in ended:
            if each.answer is Answer.PROMOTE:
                assert each.token is not None
                waiting = self._waiting[each.token]
                waiting.promotion = each
                waiting.woken.set()
        back = tuple(each for each in ended if each.answer is Answer.HAND_BACK)
        self._lines.counts.handed_back += len(back)
        return back

    def _hand_back(self, ended: tuple[Ended, ...]) -> None:
        for each in ended:
            self._unhandled(each.key, each.payload)


class _Waiting:
    """One that waits. Mutable."""

    __slots__ = ("promotion", "woken")

    def __init__(self) -> None:
        self.woken = threading.Event()
        self.promotion: Ended | None = None
        """How it became this one's turn; set under the lock."""
