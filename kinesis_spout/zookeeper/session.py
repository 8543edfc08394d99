"""One ZooKeeper session: requests, the limits of their answers, and when ownership must be given up.

kazoo's traps, and what is done about them here:

* A request made while the connection is down waits in kazoo's queue, without limit. So every wait has a
  limit, and a request whose wait ended is *in doubt*, never "failed": it may still be sent later.
* LOST is only reported after reconnecting, which may take much longer than the session lives at the server.
  So the time since SUSPENDED is measured here, on the monotonic clock (``silent_too_long``).
* A process that was stopped learns nothing before it asks: see ``certainty``.
* A server that lost its data refuses, for ever, a client that has seen a later transaction than the server
  has. kazoo keeps reconnecting with the transaction it has seen. So a session without a connection for
  ``NEW_SESSION_AFTER_TIMEOUTS`` times its life is given up, and a new one begins, which has seen nothing.
  ``store`` judges what it finds, and refuses to continue where the progress is gone.
* kazoo gives up, for good, when a connection is cut while a server checks SASL credentials. Credentials that
  were accepted at the start are not wrong now: so a new session begins.
* kazoo's debug log shows credentials and session passwords. Nothing below INFO leaves our logger.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import NoAuthError, NoNodeError, RolledBackError, RuntimeInconsistency
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry

from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.errors import StoreError, StoreUnavailable
from kinesis_spout.ports import DEFAULT_SESSION_TIMEOUT_SECONDS
from kinesis_spout.ports.leadership import CERTAIN_SHARE
from kinesis_spout.zookeeper.certainty import Certainty, seconds_awake_or_asleep
from kinesis_spout.zookeeper.credentials import CREATOR, OPEN, Login, NodeAcls, Tls
from kinesis_spout.zookeeper.errors import (
    ANSWERS,
    FAILURES,
    NOT_ACCEPTED,
    advice,
    login_refusal,
    login_unanswered,
    tls_refusal,
    translated,
)
from kinesis_spout.zookeeper.kazoo_handler import KazooHandler, KazooLog

NEW_SESSION_AFTER_TIMEOUTS: Final = 3
"""After how many of its time-outs without a connection a session is given up for a new one. More than one: a
server that was away returns with its sessions, and keeping ours is quicker than waiting until it expires."""

_LOOK_SECONDS: Final = 0.25
"""How often the address is requested while there is no connection."""

_PAUSE_SECONDS: Final = 1.0
"""Before a new session replaces one whose credentials were not accepted."""

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


class MovingServer(Protocol):
    """A server whose address may change while we have no connection to it."""

    @property
    def connect_string(self) -> str:
        """Where it is now."""
        ...


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
        self._server = None if isinstance(hosts, str) else hosts
        self.hosts = hosts if isinstance(hosts, str) else hosts.connect_string
        self.session_timeout_seconds = session_timeout_seconds
        self.clock: Clock = clock or SystemClock()
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
        self._closed = False
        self._life = threading.Lock()
        """Held while the client is stopped, started again, or given another address."""
        is_known = login is not None or (tls is not None and tls.certificate is not None)
        self.acls = acls or (CREATOR if is_known else OPEN)
        self._user = None if login is None else login.user
        self._tls = tls
        self._started = False
        self._settled = threading.Event()
        """Set when a start has succeeded, or cannot."""
        self._refusal: str | None = None
        self._servers_refused = 0
        self._trouble: BaseException | None = None
        """What was wrong with the last attempt to connect."""
        self._stops_client = False
        self._handler = KazooHandler(tls)
        self.client = KazooClient(
            hosts=self.hosts,
            timeout=session_timeout_seconds,
            handler=self._handler,
            default_acl=list(self.acls.own),
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=_RECONNECT_DELAY_SECONDS,
                max_delay=_RECONNECT_MAX_DELAY_SECONDS,
            ),
            logger=KazooLog(_log, self._noticed),
            **({} if login is None else login.kazoo_options),
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
        client_id = self.client.client_id
        return None if client_id is None else int(client_id[0])

    @property
    def silent_too_long(self) -> bool:
        """Whether the connection has been down for longer than the session lives: assume it is lost."""
        since = self._suspended_since
        return since is not None and self.clock.monotonic() - since >= self.session_timeout_seconds

    def is_certain(self) -> bool:
        """Whether the session lives for certain, without waiting; see ``Certainty``."""
        return self._certainty.is_certain()

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
        if self._started:
            return
        if self._tls is not None:
            self._tls.check_files()
        try:
            self.client.start_async()
            self._settled.wait(timeout_seconds)
            self._check_connected(timeout_seconds)
            if self._user is not None or self.client.chroot:
                self._look(timeout_seconds)
        except BaseException:
            self._stop_client()
            self.client.close()
            raise
        self._started = True

    def _check_connected(self, timeout_seconds: float) -> None:
        if self._refusal is not None:
            raise StoreError(self._refusal)
        if not self.client.connected:
            raise StoreUnavailable(
                f"no ZooKeeper answered at {self.hosts} within {timeout_seconds:g} s: is it running, and is the "
                'address right? zookeeper="embedded" starts one'
                f"{advice(self._trouble, speaks_tls=self._tls is not None)}"
            )

    def _look(self, timeout_seconds: float) -> None:
        """Make a request: kazoo calls itself connected before its credentials are accepted."""
        try:
            stat = self.client.exists_async("/").get(timeout=timeout_seconds)
        except NoAuthError:
            return  # an answer; we need not be allowed to read this node
        except FAILURES as error:
            self._handler.cut()
            if self._refusal is not None:
                raise StoreError(self._refusal) from error
            if self._user is not None and isinstance(error, KazooTimeoutError):
                raise StoreUnavailable(login_unanswered(self._user, self.hosts, timeout_seconds)) from error
            raise translated(error) from error
        if stat is None:
            raise StoreError(
                f"expected the chroot {self.client.chroot} to exist in ZooKeeper at {self.hosts}: create it first"
            )

    def _stop_client(self) -> None:
        self._stops_client = True
        self.client.stop()
        self._stops_client = False

    def close(self) -> None:
        """End the session; the server removes its ephemeral nodes at once. Idempotent."""
        self._closed = True
        self._connected.set()  # wakes those that wait for a connection that will not come
        with self._life:
            self._stop_client()
            self.client.close()

    def deadline(self) -> float:
        """When a call that begins now must end, monotonic."""
        return self.clock.monotonic() + self.answer_timeout_seconds

    def await_connection(self, deadline: float) -> int:
        """Wait until the session is usable, and return its id. Raises StoreUnavailable at the deadline."""
        seconds = max(0.0, deadline - self.clock.monotonic())
        while True:
            remaining = max(0.0, deadline - self.clock.monotonic())
            connected = self._connected.wait(remaining)
            if self._closed:
                raise StoreUnavailable(
                    f"the session with ZooKeeper at {self.hosts} was closed by this process"
                )
            if not connected:
                raise StoreUnavailable(
                    f"no connection to ZooKeeper at {self.hosts}{f' for {seconds:.1f} s' if seconds else ''}"
                    f"{advice(self._trouble, speaks_tls=self._tls is not None)}"
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
            StoreError: ZooKeeper refused it.
        """
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
        if self._started and isinstance(error, NOT_ACCEPTED):
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

    def _noticed(self, error: BaseException) -> None:
        """Note what kazoo logs of a connection; decide whether a start is in vain."""
        self._trouble = error
        if isinstance(error, NOT_ACCEPTED):
            self._refusal = login_refusal(self._user, self.hosts)
            self._settled.set()
        elif (refusal := tls_refusal(error, self.hosts)) is not None:
            self._servers_refused += 1
            if self._servers_refused >= len(self.client.hosts):  # each was asked
                self._refusal = refusal
                self._settled.set()

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
            self._settled.set()
        elif state == KazooState.SUSPENDED:
            self._suspended_since = self.clock.monotonic()
            self._connected.clear()
            threading.Thread(target=self._regain, name="kinesis-spout-session", daemon=True).start()
        else:
            self._suspended_since = None
            with self._telling:
                self._connected.clear()
                for observer in self._observers:
                    observer.session_lost()
            has_given_up = self.client.client_state in (KeeperState.AUTH_FAILED, KeeperState.CLOSED)
            if has_given_up and self._started and not self._stops_client:
                threading.Thread(target=self._begin_again, name="kinesis-spout-session", daemon=True).start()

    def _regain(self) -> None:
        """While there is no connection: follow the server's address; after a while, begin a new session."""
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
                    self._stop_client()
                    self.client.start_async()
                    renewed = True

    def _begin_again(self) -> None:
        """Have kazoo begin a new session, after it has given up."""
        self._connected.wait(_PAUSE_SECONDS)  # or until this session is closed
        with self._life:
            if not self._closed:
                # Not stopped before: the request to close would wait for the new connection.
                self.client.start_async()

    def _follow(self) -> None:
        """Point the next attempt to connect to the server's present address."""
        if self._server is not None and self._server.connect_string != self.hosts:
            self.hosts = self._server.connect_string
            self.client.set_hosts(self.hosts)
