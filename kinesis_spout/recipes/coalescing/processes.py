"""``ZooKeeperQueueCoordinator``: coalescing for several processes, on one machine or many.

The turn of a process that died ends with its ZooKeeper session, and the payload of one that died waiting
stays for the one that works. A living process that hangs is recognised by its lease: a waiting process
measures, on its own monotonic clock, the time without a renewal.
"""

import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from copy import copy
from typing import Final, Unpack

from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import InvalidConfig, StoreUnavailable
from kinesis_spout.recipes.coalescing.key_nodes import Changed, KeyNodes, TextLine
from kinesis_spout.recipes.coalescing.line import Answer, Event, Move, Moved, end, withdraw
from kinesis_spout.recipes.coalescing.lines import CoalescingCounts, Ended
from kinesis_spout.recipes.coalescing.turn import (
    Admission,
    Admitted,
    BlockingCoordinator,
    BlockingTurn,
    Unhandled,
    check_lease,
    log_unhandled,
)
from kinesis_spout.settings import ZooKeeperKeywords
from kinesis_spout.settings.zookeeper import started_session
from kinesis_spout.zookeeper import ZooKeeperSession
from kinesis_spout.zookeeper.paths import coalescing_place

MAX_PAYLOAD_BYTES: Final = 512 * 1024
"""The largest bound that can be set. A node holds slightly less than 1 MiB, unless ZooKeeper is configured
otherwise."""

_MAX_KEY_CHARS: Final = 512

_AT_ONCE: Final = 0.0
"""The sleep before the next look: none."""


class _Signal(threading.Event):
    def __call__(self, event: object) -> None:
        del event
        self.set()


class _Waiting:
    """Mutable. It knows the last sign of life of the turn that it waits for, and when that came."""

    def __init__(self, key: str, token: str, until: float | None) -> None:
        self.key = key
        self.token = token
        self.until = until
        self.woken = _Signal()
        self._sign: tuple[str, int] | None = None
        self._lease_until = 0.0

    def lease_until(self, worker: str, renewals: int, fresh: float) -> float:
        """Return when the lease of the turn is over: ``fresh`` if this is a new sign of life."""
        if self._sign != (worker, renewals):
            self._sign, self._lease_until = (worker, renewals), fresh
        return self._lease_until


class _SharedShell:
    """A ``Shell`` over ``KeyNodes``, of one process. Thread-safe; its lock guards the counts."""

    def __init__(self, nodes: KeyNodes, clock: Clock, lease_seconds: float, unhandled: Unhandled) -> None:
        self._nodes = nodes
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._unhandled = unhandled
        self._counts = CoalescingCounts()
        self._counting = threading.Lock()
        self.renew = nodes.renew

    @property
    def counts(self) -> CoalescingCounts:
        with self._counting:
            return copy(self._counts)

    def ask(self, key: str, payload: bytes, timeout_seconds: float | None, move: Move) -> Admitted | _Waiting:
        until = None if timeout_seconds is None else self._clock.monotonic() + timeout_seconds
        token = self._nodes.new_token()
        changed = self._change(key, token, lambda line: move(line, token, payload))
        if changed.answer is Answer.ACCEPT:
            self._count("accepted")
            return Admitted(Admission.ACCEPTED, token, payload)
        if changed.answer is Answer.DECLINE:
            self._count("declined")
            return Admitted(Admission.DECLINED, token)
        self._count("waited")
        return _Waiting(key, token, until)

    def look(self, waiting: _Waiting) -> Admitted | float:
        found = self._found(waiting)
        if isinstance(found, Admitted):
            self._nodes.forget(waiting.woken)
        return found

    def _found(self, waiting: _Waiting) -> Admitted | float:
        key, token, woken = waiting.key, waiting.token, waiting.woken
        woken.clear()
        asked_at = self._clock.monotonic()
        stored = self._nodes.read(key, woken)
        if stored is None or token not in {stored.line.worker, stored.line.waiting}:
            return self._dropped_out(token)
        worker = stored.line.worker
        if worker == token:
            self._count("promoted")
            return Admitted(Admission.WAITED, token, stored.line.newest or b"")
        if not self._nodes.lives(token, woken):
            withdrawn = self._change(key, token, lambda line: withdraw(line, token, is_dead=True))
            return _AT_ONCE if withdrawn.answer is Answer.REFUSE else self._dropped_out(token)
        now = self._clock.monotonic()
        lease_until = waiting.lease_until(worker, stored.renewals, now + self._lease_seconds)
        # A renewal that came after the answer does not count against the time before the question.
        if asked_at >= lease_until or not self._nodes.lives(worker, woken):
            self._expire(key, token, worker)
            return _AT_ONCE
        if waiting.until is not None and now >= waiting.until:
            return Admitted(Admission.TIMED_OUT, token) if self._withdraw(key, token) else _AT_ONCE
        return min(lease_until, lease_until if waiting.until is None else waiting.until) - now

    def _dropped_out(self, token: str) -> Admitted:
        """Leave, because our session has ended: what waited stays for the one that works, or is replaced."""
        self._count("gave_up")
        return Admitted(Admission.DECLINED, token)

    def _expire(self, key: str, token: str, worker: str) -> None:
        changed = self._change(key, token, lambda line: end(line, worker, Event.EXPIRED))
        if changed.answer is not Answer.REFUSE:
            self._count("expired")

    def _change(self, key: str, token: str, move: Callable[[TextLine | None], Moved[str, bytes]]) -> Changed:
        changed = self._nodes.change(key, token, move)
        if changed.expired:
            self._count("expired")
        return changed

    def _withdraw(self, key: str, token: str) -> bool:
        """Give up waiting; False if its turn has come."""
        changed = self._change(key, token, lambda line: withdraw(line, token))
        if changed.answer is Answer.REFUSE:
            return False
        self._count("gave_up")
        return True

    def give_up(self, waiting: _Waiting) -> None:
        try:
            with suppress(StoreUnavailable):  # then its session, or its lease, ends its wait
                self._leave(waiting.key, waiting.token)
        finally:
            self._nodes.forget(waiting.woken)

    def _leave(self, key: str, token: str) -> None:
        if self._withdraw(key, token):
            return
        changed = self._change(key, token, lambda line: end(line, token, Event.FAILED))
        if changed.answer is Answer.REFUSE:
            return
        self._count("promoted")
        self._count("failed")
        if changed.answer is Answer.LEAVE and changed.before is not None and changed.before.declined:
            self._hand_back(key, changed.before.newest)

    def end(self, key: str, token: str, event: Event) -> Ended:
        changed = self._change(key, token, lambda line: end(line, token, event, token))
        answer, before = changed.answer, changed.before
        if answer is Answer.REFUSE or before is None:
            self._count("refused")
            return Ended(key, Answer.REFUSE)
        self._count("completed" if event is Event.DONE else "failed")
        if answer is Answer.GO_ON:
            self._count("continued")
        elif answer is Answer.HAND_BACK:
            self._hand_back(key, before.newest)
        return Ended(key, answer, token, before.newest, before.declined)

    def _hand_back(self, key: str, payload: bytes | None) -> None:
        self._count("handed_back")
        self._unhandled(key, payload)

    def _count(self, name: str) -> None:
        with self._counting:
            setattr(self._counts, name, getattr(self._counts, name) + 1)


class ZooKeeperQueueCoordinator(BlockingCoordinator[str, bytes]):
    """``QueueCoordinator`` for processes that share a ZooKeeper. Thread-safe. Mutable.

    Keys are text, payloads are bytes. Make it with ``coalesce_across``. A turn is over when its process has
    died and its ZooKeeper session with it, or when a waiting process has seen no renewal for
    ``lease_seconds``. A process without a connection may work on for a moment: if that matters, let the store
    it writes to refuse an older state.

    Args:
        place: the node below which everything is; made when it is missing, with its parents.
        session: started; closed with the coordinator.
        lease_seconds: how long a waiting request accepts no sign of life from the current turn.
        max_payload_bytes: the largest payload.
        unhandled: as in ``QueueCoordinator``.
        close: closes the session, and what it needs.

    Raises:
        InvalidConfig: a number is out of its range.
    """

    def __init__(
        self,
        place: tuple[str, ...],
        session: ZooKeeperSession,
        *,
        lease_seconds: float = 60.0,
        max_payload_bytes: int = 64 * 1024,
        unhandled: Unhandled = log_unhandled,
        close: Callable[[], None] | None = None,
    ) -> None:
        check_lease(lease_seconds)
        if not 1 <= max_payload_bytes <= MAX_PAYLOAD_BYTES:
            raise InvalidConfig(
                f"max_payload_bytes: expected 1 to {MAX_PAYLOAD_BYTES}, got {max_payload_bytes!r}"
            )
        self._nodes = KeyNodes(place, session)
        self._shell = _SharedShell(self._nodes, session.clock, lease_seconds, unhandled)
        self._max_payload_bytes = max_payload_bytes
        self._close = close or session.close

    def request(
        self, key: str, payload: bytes, *, timeout_seconds: float | None = None
    ) -> BlockingTurn[bytes]:
        """Ask for a turn; ``with`` makes the request. The arguments are those of ``QueueCoordinator``.

        Raises:
            InvalidConfig: the key is empty or too long, or the payload larger than ``max_payload_bytes``.
        """
        if not 1 <= len(key) <= _MAX_KEY_CHARS:
            raise InvalidConfig(f"key: expected 1 to {_MAX_KEY_CHARS} characters, got {len(key)}")
        if len(payload) > self._max_payload_bytes:
            raise InvalidConfig(
                f"payload: expected at most max_payload_bytes={self._max_payload_bytes}, got {len(payload)} "
                "bytes: put it elsewhere, and coalesce requests that name it"
            )
        return BlockingTurn(self._shell, key, payload, timeout_seconds)

    @property
    def counts(self) -> CoalescingCounts:
        """Counts of this process's requests since the start, as a copy."""
        return self._shell.counts

    def keys_now(self) -> int:
        """Count the keys with a turn under way, in all processes.

        Raises:
            StoreUnavailable: retriable.
        """
        return self._nodes.count()

    def close(self) -> None:
        """End the session, and with it the turns under way."""
        self._close()


def coalesce_across(
    name: str,
    *,
    lease_seconds: float = 60.0,
    max_payload_bytes: int = 64 * 1024,
    unhandled: Unhandled = log_unhandled,
    **zookeeper: Unpack[ZooKeeperKeywords],
) -> ZooKeeperQueueCoordinator:
    """Connect to ZooKeeper to coalesce there, with all processes that give the same name. Close it at the end.

    Args:
        name: of the work: keys of another name are other keys.
        lease_seconds: how long a waiting request accepts no sign of life from the current turn.
        max_payload_bytes: the largest payload, at most 512 KiB.
        unhandled: called with a key and its payload that no request handles; see ``QueueCoordinator``.
        zookeeper: the address and our credentials: ``zookeeper``, ``session_timeout_seconds``, and the
            settings of ``SpoutConfig`` whose names begin with ``zookeeper_``. The turn of a process that was
            killed passes on after the session time-out.

    Raises:
        InvalidConfig: an argument is invalid.
        StoreUnavailable, StoreError: no ZooKeeper answers, it refuses us, or the embedded one does not start.
    """
    with ExitStack() as opened:
        root, session = started_session(name, zookeeper, opened)
        kept = ExitStack()
        coordinator = ZooKeeperQueueCoordinator(
            coalescing_place(root, name),
            session,
            lease_seconds=lease_seconds,
            max_payload_bytes=max_payload_bytes,
            unhandled=unhandled,
            close=kept.close,
        )
        kept.push(opened.pop_all())  # only now: what is refused must not stay open
        return coordinator
