"""One ZooKeeper session: who asks, how long an answer may take, and when ownership has to be given up.

kazoo's traps, and what is done about them here:

* A request made while the connection is down waits in kazoo's queue, for ever if need be. So every wait has a
  limit, and a request whose wait ended is *in doubt*, never "failed": it may still be sent later.
* LOST is only reported after reconnecting, which may take much longer than the session lives at the server.
  So the time since SUSPENDED is measured here, on the monotonic clock (``silent_too_long``).
* A server that lost its data refuses, for ever, a client that has seen a later transaction than the server has.
  kazoo goes on knocking with what it has seen. So a session that has had no connection for
  ``NEW_SESSION_AFTER_TIMEOUTS`` times its life is given up, and a new one begins, which has seen nothing. What it
  finds is the store's to judge (``store``: it refuses to go on where the progress is gone).
* kazoo's debug log shows credentials and session passwords. Nothing below INFO leaves our logger.
"""

import logging
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import RolledBackError, RuntimeInconsistency
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL

from kinesis_spout.clock import Clock, SystemClock
from kinesis_spout.errors import StoreUnavailable
from kinesis_spout.ports import DEFAULT_SESSION_TIMEOUT_SECONDS
from kinesis_spout.zookeeper.errors import ANSWERS, FAILURES, translated

NEW_SESSION_AFTER_TIMEOUTS: Final = 3
"""After how many of its time-outs without a connection a session is given up for a new one. More than one: a
server that was away returns with its sessions, and to keep ours is quicker than to wait until it expires."""

_LOOK_SECONDS: Final = 0.25
"""How often the address is asked for while there is no connection."""

_RECONNECT_DELAY_SECONDS: Final = 0.05
_RECONNECT_MAX_DELAY_SECONDS: Final = 1.0
"""kazoo's default of an hour would outlast every session."""

_ANSWER_GRACE_SECONDS: Final = 5.0
"""How much longer than the session an answer may take; by then kazoo has noticed a dead connection."""


class _NoSecrets(logging.Filter):
    """Keeps kazoo's debug lines, which show credentials, out of every log."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.INFO


_log = logging.getLogger("kinesis_spout.zookeeper.kazoo")
_log.addFilter(_NoSecrets())


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How to speak TLS with ZooKeeper. Paths name PEM files."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    verify: bool = True
    check_host_name: bool = True


class MovingServer(Protocol):
    """A server whose address may change while we have no connection to it."""

    @property
    def connect_string(self) -> str:
        """Where it is now."""
        ...


class SessionObserver(Protocol):
    """Is told about the session, on kazoo's connection thread: it must not block."""

    def session_connected(self, session_id: int) -> None:
        """The session is usable, for the first time or again; its id tells which."""
        ...

    def session_lost(self) -> None:
        """The session is over, and every ephemeral node of it is gone or will be."""
        ...


class ZooKeeperSession:
    """Mutable. A session with a ZooKeeper ensemble, that renews itself after loss. Thread-safe.

    Args:
        hosts: ``host:port,host:port``, optionally with a chroot at the end, which must exist. Or a
            server that may move: it is asked again while there is no connection.
        session_timeout_seconds: after how long without a sign of life the server gives our nodes up. The
            server's tick bounds it (2 to 20 ticks unless configured).
        digest: ``user:password``. With it, what is created belongs to that user alone (ACL "creator all").
        tls: speak TLS.
        clock: for the monotonic time.
    """

    def __init__(
        self,
        hosts: str | MovingServer,
        *,
        session_timeout_seconds: float = DEFAULT_SESSION_TIMEOUT_SECONDS,
        digest: str | None = None,
        tls: Tls | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._server = None if isinstance(hosts, str) else hosts
        self.hosts = hosts if isinstance(hosts, str) else hosts.connect_string
        self.session_timeout_seconds = session_timeout_seconds
        self.clock: Clock = clock or SystemClock()
        self._observers: list[SessionObserver] = []
        self._connected = threading.Event()
        self._suspended_since: float | None = None
        self._closed = False
        self._life = threading.Lock()
        """Held while the client is stopped, started again, or told another address."""
        tls_options: dict[str, Any] = {}
        if tls is not None:
            tls_options = {
                "use_ssl": True,
                "ca": tls.ca,
                "certfile": tls.certificate,
                "keyfile": tls.key,
                "keyfile_password": tls.key_password,
                "verify_certs": tls.verify,
                "check_hostname": tls.check_host_name,
            }
        self.client = KazooClient(
            hosts=self.hosts,
            timeout=session_timeout_seconds,
            auth_data=None if digest is None else [("digest", digest)],
            default_acl=None if digest is None else CREATOR_ALL_ACL,
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=_RECONNECT_DELAY_SECONDS,
                max_delay=_RECONNECT_MAX_DELAY_SECONDS,
            ),
            logger=_log,
            **tls_options,
        )
        self.client.add_listener(self._state_changed)

    def __repr__(self) -> str:
        return f"ZooKeeperSession({self.hosts!r}, session_timeout_seconds={self.session_timeout_seconds})"

    @property
    def answer_timeout_seconds(self) -> float:
        """How long one call may take, reconnecting included, before it ends as StoreUnavailable."""
        return self.session_timeout_seconds + _ANSWER_GRACE_SECONDS

    @property
    def session_id(self) -> int | None:
        """The id of the session, or None while there is no connection."""
        client_id = self.client.client_id
        return None if client_id is None else int(client_id[0])

    @property
    def silent_too_long(self) -> bool:
        """Whether the connection has been down for longer than the session lives: assume it is lost."""
        since = self._suspended_since
        return since is not None and self.clock.monotonic() - since >= self.session_timeout_seconds

    def subscribe(self, observer: SessionObserver) -> None:
        """Tell ``observer`` from now on. Subscribe before ``start``."""
        self._observers.append(observer)

    def start(self, timeout_seconds: float = 15.0) -> None:
        """Connect.

        Raises:
            StoreUnavailable: nobody answered in time.
        """
        try:
            self.client.start(timeout=timeout_seconds)
        except FAILURES as error:
            raise StoreUnavailable(
                f"no ZooKeeper answered at {self.hosts} within {timeout_seconds:g} s: is it running, and is the "
                'address right? zookeeper="embedded" starts one'
            ) from error

    def close(self) -> None:
        """End the session; the server removes its ephemeral nodes at once. May be called twice."""
        self._closed = True
        self._connected.set()  # wakes whoever waits for a connection that will not come
        with self._life:
            self.client.stop()
            self.client.close()

    def deadline(self) -> float:
        """By when a call that begins now has to end, in monotonic time."""
        return self.clock.monotonic() + self.answer_timeout_seconds

    def await_connection(self, deadline: float) -> int:
        """Wait until the session is usable, and give its id.

        Raises:
            StoreUnavailable: it was not by the deadline.
        """
        while True:
            remaining = max(0.0, deadline - self.clock.monotonic())
            connected = self._connected.wait(remaining)
            if self._closed:
                raise StoreUnavailable(
                    f"the session with ZooKeeper at {self.hosts} was closed by this process"
                )
            if not connected:
                raise StoreUnavailable(
                    f"no connection to ZooKeeper at {self.hosts} for {self.answer_timeout_seconds:g} s"
                )
            session_id = self.session_id
            if session_id is not None:
                return session_id
            if remaining == 0:
                raise StoreUnavailable(f"the connection to ZooKeeper at {self.hosts} does not last")

    def answer(self, request: Any) -> Any:
        """Wait for the answer to one of kazoo's asynchronous requests.

        Raises:
            NoNodeError, NodeExistsError, BadVersionError, NotEmptyError: kazoo's, as they are.
            StoreUnavailable: whether the request takes effect is unknown.
            StoreError: ZooKeeper refused it.
        """
        try:
            return request.get(timeout=self.answer_timeout_seconds)
        except ANSWERS:
            raise
        except FAILURES as error:
            raise translated(error) from error

    def answers(self, requests: Iterable[Any]) -> list[Any]:
        """Wait for several answers; raises as ``answer`` does, for the first that failed."""
        return [self.answer(request) for request in requests]

    def committed(self, request: Any) -> None:
        """Wait for a transaction sent with ``commit_async``.

        Raises:
            NoNodeError, NodeExistsError, BadVersionError, NotEmptyError: kazoo's, as they are: what the first
                refused operation met. Nothing of the transaction took effect.
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
            for observer in self._observers:
                observer.session_connected(session_id)
            self._connected.set()
        elif state == KazooState.SUSPENDED:
            self._connected.clear()
            self._suspended_since = self.clock.monotonic()
            threading.Thread(target=self._regain, name="kinesis-spout-session", daemon=True).start()
        else:
            self._connected.clear()
            self._suspended_since = None
            for observer in self._observers:
                observer.session_lost()

    def _regain(self) -> None:
        """While there is no connection: look where the server is now; after a while, begin a new session."""
        silence_seconds = NEW_SESSION_AFTER_TIMEOUTS * self.session_timeout_seconds
        new_session_at = self.clock.monotonic() + silence_seconds
        renewed = False
        while not self._connected.wait(_LOOK_SECONDS):
            with self._life:
                if self._closed:
                    return
                self._follow()
                if not renewed and self.clock.monotonic() >= new_session_at:
                    _log.warning(
                        "no connection to ZooKeeper at %s has held for %g s: a new session begins",
                        self.hosts,
                        silence_seconds,
                    )
                    # Forgets the session and the last transaction seen, and connects as a new client does.
                    self.client.stop()
                    self.client.start_async()
                    renewed = True

    def _follow(self) -> None:
        """Let the next attempt to connect go to where the server is now."""
        if self._server is not None and self._server.connect_string != self.hosts:
            self.hosts = self._server.connect_string
            self.client.set_hosts(self.hosts)
