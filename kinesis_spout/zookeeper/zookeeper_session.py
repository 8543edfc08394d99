"""One ZooKeeper session: requests, the limits of their answers, and when ownership must be given up.

kazoo's traps, and what is done about them here; those of its connection are in ``kazoo_connection``:

* A request made while the connection is down waits in kazoo's queue, without limit. So every wait has a
  limit, and a request whose wait ended is *in doubt*, never "failed": it may still be sent later.
* LOST is only reported after reconnecting, which may take much longer than the session lives at the server.
  So the time since SUSPENDED is measured here, on the monotonic clock (``silent_too_long``).
* A process that was stopped learns nothing before it asks: see ``Certainty``.
"""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, Final, Protocol

from kazoo.client import KazooState
from kazoo.exceptions import NoNodeError, RolledBackError, RuntimeInconsistency

from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.errors import StoreError, StoreUnavailable
from kinesis_spout.ports import DEFAULT_SESSION_TIMEOUT_SECONDS
from kinesis_spout.ports.leadership import CERTAIN_SHARE
from kinesis_spout.zookeeper.credentials import CREATOR, OPEN, Login, NodeAcls, Tls
from kinesis_spout.zookeeper.kazoo_connection import KazooConnection, MovingServer
from kinesis_spout.zookeeper.kazoo_errors import (
    ANSWERS,
    FAILURES,
    NOT_ACCEPTED,
    translated,
)

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
_ANSWER_GRACE_SECONDS: Final = 5.0
"""The time that an answer may take beyond the session's; by then kazoo has noticed a dead connection."""


seconds_awake_or_asleep: Final[Callable[[], float]] = (
    time.monotonic if _CLOCK is None else partial(time.clock_gettime, _CLOCK)
)
"""Monotonic seconds that include the machine's sleep: a server does not sleep with us.

Linux leaves sleep out of CLOCK_MONOTONIC, macOS out of the clock of ``time.monotonic``.
"""


class Certainty:
    """Knows whether ZooKeeper has answered lately. Thread-safe.

    A process that was stopped (SIGSTOP, a laptop's lid, a long garbage collection) learns that its session is
    over only after it asks, while another member may have its shards already. So it relies on its own clock:
    from each moment at which it asked, and ZooKeeper answered, the session lives for its time-out.

    Args:
        seconds: how long an answer makes certain: less than the time-out.
        ask: sends a question without waiting; calls its argument, on any thread, with whether it was answered.
        now: the time, the machine's sleep included.
    """

    def __init__(
        self, seconds: float, ask: Callable[[Callable[[bool], None]], None], now: Callable[[], float]
    ) -> None:
        self._seconds = seconds
        self._send = ask
        self._now = now
        self._lock = threading.Lock()
        self._heard_at = -inf
        """When the last answered question was asked."""
        self._asked_at: float | None = None
        """When the pending question was asked."""

    def is_certain(self) -> bool:
        """Return without waiting; asks when half of the time has passed."""
        age = self._now() - self._heard_at
        if age >= self._seconds / 2:
            self.ask()
            age = self._now() - self._heard_at  # where the answer came at once
        return age < self._seconds

    def ask(self) -> None:
        """Ask, unless a question is pending. One that has waited for too long no longer counts."""
        with self._lock:
            now = self._now()
            if self._asked_at is not None and now < self._asked_at + self._seconds:
                return
            self._asked_at = now

        def ended(answered: bool) -> None:  # noqa: FBT001 - called with the answer
            with self._lock:
                if answered:
                    self._heard_at = max(self._heard_at, now)
                if self._asked_at == now:
                    self._asked_at = None

        self._send(ended)


class SessionObserver(Protocol):
    """Called about the session on kazoo's connection thread: it must not block."""

    def session_connected(self, session_id: int) -> None:
        """The session is usable, for the first time or again; its id tells which."""
        ...

    def session_lost(self) -> None:
        """The session is over, and every ephemeral node of it is gone or will be."""
        ...


class ZooKeeperSession:
    """Mutable. A session with a ZooKeeper ensemble, that renews itself after loss. Thread-safe.

    Args:
        hosts: ``host:port,host:port``, optionally with a chroot at the end, which must exist. Or a server
            whose address can change: it is read again while there is no connection.
        session_timeout_seconds: how long without a sign of life until the server removes our nodes. The
            server's tick bounds it (2 to 20 ticks by default).
        login: our credentials. None: everybody's; or those of the certificate of ``tls``.
        tls: speak TLS.
        acls: of new nodes. None: they belong to us alone, if we have credentials.
        clock: for the monotonic time.
    """

    def __init__(
        self,
        hosts: str | MovingServer,
        *,
        session_timeout_seconds: float = DEFAULT_SESSION_TIMEOUT_SECONDS,
        login: Login | None = None,
        tls: Tls | None = None,
        acls: NodeAcls | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.session_timeout_seconds = session_timeout_seconds
        self.clock: Clock = clock or SystemClock()
        self._process = os.getpid()
        is_known = login is not None or (tls is not None and tls.certificate is not None)
        self.acls = acls or (CREATOR if is_known else OPEN)
        self._observers: list[SessionObserver] = []
        self._telling = threading.RLock()
        """Held while observers are called, so that a later one is called in order."""
        self._connected = threading.Event()
        self._suspended_since: float | None = None
        self._certainty = Certainty(
            CERTAIN_SHARE * session_timeout_seconds,
            self._ask,
            seconds_awake_or_asleep if clock is None else clock.monotonic,
        )
        self.is_certain = self._certainty.is_certain
        """True if the session lives for certain, without waiting. It is asked for every record."""
        self._connection = KazooConnection(
            hosts,
            session_timeout_seconds=session_timeout_seconds,
            login=login,
            tls=tls,
            acl=self.acls.own,
            clock=self.clock,
            connected=self._connected,
        )
        self.client = self._connection.client
        self.client.add_listener(self._state_changed)

    def __repr__(self) -> str:
        return f"ZooKeeperSession({self.hosts!r}, session_timeout_seconds={self.session_timeout_seconds})"

    @property
    def hosts(self) -> str:
        """The server's address, to our knowledge."""
        return self._connection.hosts

    @property
    def answer_timeout_seconds(self) -> float:
        """The time that one call may take, reconnecting included, before it ends as StoreUnavailable."""
        return self.session_timeout_seconds + _ANSWER_GRACE_SECONDS

    @property
    def session_id(self) -> int | None:
        client_id = self.client.client_id
        return None if client_id is None else int(client_id[0])

    @property
    def silent_too_long(self) -> bool:
        """True if the connection has been down for longer than the session lives: assume it is lost."""
        since = self._suspended_since
        return since is not None and self.clock.monotonic() - since >= self.session_timeout_seconds

    def _ask(self, ended: Callable[[bool], None]) -> None:
        if self._connected.is_set():
            self.client.exists_async("/").rawlink(lambda request: ended(request.successful()))
        else:
            ended(False)  # or it would wait in kazoo's queue, and others behind it

    def subscribe(self, observer: SessionObserver) -> None:
        """Call ``observer`` from now on, and at once if there is a connection."""
        with self._telling:
            self._observers.append(observer)
            session_id = self.session_id
            if self._connected.is_set() and session_id is not None:
                observer.session_connected(session_id)

    def unsubscribe(self, observer: SessionObserver) -> None:
        with self._telling, suppress(ValueError):
            self._observers.remove(observer)

    def start(self, timeout_seconds: float = 15.0) -> None:
        """Connect, and check that our credentials are accepted. Does nothing if that was done.

        Raises:
            InvalidConfig: a file of TLS cannot be used.
            StoreError: the server refuses us, or we refuse it; or the chroot does not exist.
            StoreUnavailable: no server answered in time.
        """
        self._connection.start(timeout_seconds)

    def said_of_itself(self) -> str:
        """The answer of the first server that gives one to `srvr`: its version and mode; empty if none does."""
        for address in self.client.hosts:
            with suppress(OSError):
                return str(self.client.handler.ask(address, b"srvr", self.session_timeout_seconds))
        return ""

    def close(self) -> None:
        """End the session; the server removes its ephemeral nodes at once. Idempotent.

        Does nothing in a forked child: the session is its parent's.
        """
        if os.getpid() == self._process:
            self._connection.close()

    def _refuse_if_forked(self) -> None:
        """A forked child has none of kazoo's threads: a request would wait for ever."""
        if os.getpid() != self._process:
            raise StoreError(
                f"expected a session with ZooKeeper that process {os.getpid()} began, got one that its parent "
                f"{self._process} did; connect after the fork"
            )

    def deadline(self) -> float:
        """When a call that begins now must end, monotonic."""
        return self.clock.monotonic() + self.answer_timeout_seconds

    def await_connection(self, deadline: float) -> int:
        """Wait until the session is usable, and return its id.

        Raises:
            StoreUnavailable: at the deadline.
            StoreError: this process was forked from the one that began the session.
        """
        self._refuse_if_forked()
        seconds = max(0.0, deadline - self.clock.monotonic())
        while True:
            remaining = max(0.0, deadline - self.clock.monotonic())
            # One that is closed connects no more; those that wait when it is closed are woken.
            connected = not self._connection.is_closed and self._connected.wait(remaining)
            if self._connection.is_closed:
                raise StoreUnavailable(
                    f"the session with ZooKeeper at {self.hosts} was closed by this process"
                )
            if not connected:
                raise StoreUnavailable(
                    f"no connection to ZooKeeper at {self.hosts}{f' for {seconds:.1f} s' if seconds else ''}"
                    f"{self._connection.advice}"
                )
            session_id = self.session_id
            if session_id is not None:
                return session_id
            if remaining == 0:
                raise StoreUnavailable(f"the connection to ZooKeeper at {self.hosts} keeps breaking")

    def ready(self) -> int:
        """Wait until the session is usable, as long as a call may take; raises as ``await_connection``."""
        return self.await_connection(self.deadline())

    def answer(self, request: Any) -> Any:
        """Wait for the answer to one of kazoo's asynchronous requests.

        Raises:
            NoNodeError, NodeExistsError, BadVersionError, NotEmptyError: kazoo's, unchanged.
            StoreUnavailable: whether the request takes effect is unknown.
            StoreError: ZooKeeper refused it; or as ``await_connection``.
        """
        self._refuse_if_forked()
        try:
            return request.get(timeout=self.answer_timeout_seconds)
        except ANSWERS:
            raise
        except FAILURES as error:
            raise self.translated(error) from error

    def found(self, request: Any) -> Any:
        """Return the answer to a request, or None if the node does not exist; raises as ``answer``."""
        try:
            return self.answer(request)
        except NoNodeError:
            return None

    def children(self, path: str) -> list[str]:
        """Return a node's children, in order; none if it does not exist. Raises as ``answer``."""
        return sorted(self.found(self.client.get_children_async(path)) or ())

    def delete(self, path: str) -> None:
        """Delete a node, if it exists. Raises as ``answer``."""
        self.found(self.client.delete_async(path))

    def translated(self, error: Exception) -> StoreError:
        """Return this package's error with the same meaning; see the traps above. Raise it ``from error``."""
        meaning = translated(error)
        if self._connection.is_started and isinstance(error, NOT_ACCEPTED):
            return StoreUnavailable(f"{meaning}; they were accepted before: it is tried again")
        return meaning

    def committed(self, request: Any) -> None:
        """Wait for a transaction sent with ``commit_async``.

        Raises:
            NoNodeError, NodeExistsError, BadVersionError, NotEmptyError: kazoo's, unchanged, of the first
                refused operation. Nothing of the transaction took effect.
            StoreUnavailable: whether it takes effect is unknown.
            StoreError: ZooKeeper refused it.
        """
        for result in self.answer(request):
            # Every other operation of a refused transaction carries one of these two.
            if isinstance(result, Exception) and not isinstance(
                result, RolledBackError | RuntimeInconsistency
            ):
                if isinstance(result, ANSWERS):
                    raise result
                raise translated(result) from result

    def _state_changed(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._suspended_since = None
            session_id = self.session_id
            assert session_id is not None, "kazoo sets the session id before it reports the connection"
            with self._telling:
                for observer in self._observers:
                    observer.session_connected(session_id)
                self._connected.set()
            self._certainty.ask()
            self._connection.settled.set()
        elif state == KazooState.SUSPENDED:
            self._suspended_since = self.clock.monotonic()
            self._connected.clear()
            self._connection.regain()
        else:
            self._suspended_since = None
            with self._telling:
                self._connected.clear()
                for observer in self._observers:
                    observer.session_lost()
            self._connection.begin_again()
