"""kazoo's client: started once its credentials are accepted, and started again where kazoo gives up.

kazoo's traps, and what is done about them here:

* A server that lost its data refuses, for ever, a client that has seen a later transaction than the server
  has. kazoo keeps reconnecting with the transaction it has seen. So a session without a connection for
  ``NEW_SESSION_AFTER_TIMEOUTS`` times its life is given up, and a new one begins, which has seen nothing.
  ``store`` judges what it finds, and refuses to continue where the progress is gone.
* kazoo gives up, for good, when a connection is cut while a server checks SASL credentials. Credentials that
  were accepted at the start are not wrong now: so a new session begins.
* kazoo's debug log shows credentials and session passwords. Nothing below INFO leaves our logger.
"""

import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import ACL

from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import StoreError, StoreUnavailable
from kinesis_spout.zookeeper.credentials import Login, Tls
from kinesis_spout.zookeeper.kazoo_errors import (
    FAILURES,
    NOT_ACCEPTED,
    advice,
    login_refusal,
    login_unanswered,
    tls_refusal,
    translated,
)

NEW_SESSION_AFTER_TIMEOUTS: Final = 3
"""After how many of its time-outs without a connection a session is given up for a new one. More than one: a
server that was away returns with its sessions, and keeping ours is quicker than waiting until it expires."""

_LOOK_SECONDS: Final = 0.25
"""The interval at which the address is requested while there is no connection."""

_PAUSE_SECONDS: Final = 1.0
"""Before a new session replaces one whose credentials were not accepted."""

_RECONNECT_DELAY_SECONDS: Final = 0.05
_RECONNECT_MAX_DELAY_SECONDS: Final = 1.0
"""kazoo's default of an hour would outlast every session."""


_QUIET_SECONDS: Final = 2.0
"""A start that takes longer is logged, because a person waits for it."""

_waiting_log = logging.getLogger(__name__)
_waited_for: Final = set[str]()
"""The hosts whose silence this process has logged, until they answer."""
_log = logging.getLogger("kinesis_spout.zookeeper.kazoo")
_log.addFilter(lambda record: record.levelno >= logging.INFO)  # kazoo's debug lines show credentials


class KazooHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's own, except for three things. Mutable.

    * kazoo's TLS leaves a connection open whose handshake fails, trusts the system's CAs besides the named
      one, and asks for the password of a key at the terminal.
    * A thread that ends by an error of kazoo's, which is in the log, prints no traceback.
    * A connection can be cut. With a server without SASL, kazoo continues as long as the connection lasts.
    """

    def __init__(self, tls: Tls | None) -> None:
        super().__init__()
        self._tls = tls
        self._connection: socket.socket | None = None

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float | None = None, **_: Any
    ) -> socket.socket:
        """Connect; by TLS if configured. Raises OSError, as kazoo expects."""
        self._connection = self._connected(address, hostname, timeout)
        return self._connection

    def ask(self, address: tuple[str, int], word: bytes, timeout: float) -> str:
        """Ask a server one of its four-letter questions, on a connection of its own. Raises OSError."""
        # kazoo's own takes the port for the name that a certificate must have, and may leave the connection open.
        answer = b""
        with self._connected(address, address[0], timeout) as connection:
            connection.sendall(word)
            while chunk := connection.recv(4096):
                answer += chunk
        return answer.decode(errors="replace")

    def _connected(
        self, address: tuple[str, int], hostname: str | None, timeout: float | None
    ) -> socket.socket:
        connection: socket.socket
        if self._tls is None:
            connection = super().create_connection(address, timeout=timeout)
        else:
            connection = self._by_tls(self._tls, address, hostname, timeout)
        return connection

    @staticmethod
    def _by_tls(
        tls: Tls, address: tuple[str, int], hostname: str | None, timeout: float | None
    ) -> socket.socket:
        context = tls.context()
        plain = socket.create_connection(address, timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return context.wrap_socket(plain, server_hostname=hostname)
        except BaseException:
            plain.close()
            raise

    def cut(self) -> None:
        if self._connection is not None:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)

    def spawn(self, func: Callable[..., None], *args: Any, **kwargs: Any) -> Any:
        def run() -> None:
            with suppress(KazooException):
                func(*args, **kwargs)

        return super().spawn(run)


class KazooLog(logging.LoggerAdapter[logging.Logger]):
    """kazoo's log; calls ``noticed`` with each error, on kazoo's connection thread: it must not block. Mutable.

    kazoo warns of every attempt to connect. The first of attempts that fail alike is logged; none while
    ``is_quiet``.
    """

    def __init__(
        self, log: logging.Logger, noticed: Callable[[BaseException], None], is_quiet: Callable[[], bool]
    ) -> None:
        super().__init__(log)
        self._noticed = noticed
        self._is_quiet = is_quiet
        self._warned: tuple[str, ...] = ()

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        return msg, kwargs

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Report the error of the line, if any; then log it, unless it repeats the last warning."""
        traced = kwargs.get("exc_info")
        for error in (*args, sys.exc_info()[1] if traced is True else traced):
            if level >= logging.WARNING and isinstance(error, BaseException):
                self._noticed(error)
        if level >= logging.WARNING:
            warned = (str(msg), *map(str, args))
            if warned == self._warned or self._is_quiet():
                return
            self._warned = warned
        elif level == logging.INFO and "established" in str(msg):
            self._warned = ()
        super().log(level, msg, *args, **kwargs, stacklevel=2)


class MovingServer(Protocol):
    """A server whose address may change while we have no connection to it."""

    @property
    def connect_string(self) -> str:
        """Its present address."""
        ...


class KazooConnection:
    """Mutable, thread-safe. ``connected`` is set, and cleared, by the session: whether it is usable."""

    def __init__(
        self,
        hosts: str | MovingServer,
        *,
        session_timeout_seconds: float,
        login: Login | None,
        tls: Tls | None,
        acl: Iterable[ACL],
        clock: Clock,
        connected: threading.Event,
    ) -> None:
        self._server = None if isinstance(hosts, str) else hosts
        self.hosts = hosts if isinstance(hosts, str) else hosts.connect_string
        self._session_timeout_seconds = session_timeout_seconds
        self._user = None if login is None else login.user
        self._tls = tls
        self._clock = clock
        self._connected = connected
        self.is_started = False
        self.is_closed = False
        self._life = threading.Lock()
        """Held while the client is stopped, started again, or given another address."""
        self._stops_client = False
        self.settled = threading.Event()
        """Set when a start has succeeded, or cannot."""
        self._refusal: str | None = None
        self._servers_refused = 0
        self.trouble: BaseException | None = None
        """The trouble of the last attempt to connect."""
        self._handler = KazooHandler(tls)
        self.client = KazooClient(
            hosts=self.hosts,
            timeout=session_timeout_seconds,
            handler=self._handler,
            default_acl=list(acl),
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=_RECONNECT_DELAY_SECONDS,
                max_delay=_RECONNECT_MAX_DELAY_SECONDS,
            ),
            logger=KazooLog(_log, self._noticed, lambda: not self.is_started),
            **({} if login is None else login.kazoo_options),
        )

    @property
    def advice(self) -> str:
        """A guess at what is wrong, to be put behind a message; empty if nothing is known."""
        return advice(self.trouble, speaks_tls=self._tls is not None)

    def start(self, timeout_seconds: float) -> None:
        if self.is_started:
            return
        if self._tls is not None:
            self._tls.check_files()
        try:
            self.client.start_async()
            self._await_start(timeout_seconds)
            self._check_connected(timeout_seconds)
            if self._user is not None or self.client.chroot:
                self._look(timeout_seconds)
        except BaseException:
            self._stop_client()
            self.client.close()
            raise
        self.is_started = True

    def _await_start(self, timeout_seconds: float) -> None:
        """Wait for the first connection; say so once if that takes long, until these hosts answer."""
        if not self.settled.wait(min(_QUIET_SECONDS, timeout_seconds)) and timeout_seconds > _QUIET_SECONDS:
            if self.hosts not in _waited_for:
                _waited_for.add(self.hosts)
                _waiting_log.warning(
                    "waiting for ZooKeeper at %s: no answer yet after %g s, %g s at most%s",
                    self.hosts,
                    _QUIET_SECONDS,
                    timeout_seconds,
                    self.advice,
                )
            self.settled.wait(timeout_seconds - _QUIET_SECONDS)
        if self.client.connected:
            _waited_for.discard(self.hosts)

    def _check_connected(self, timeout_seconds: float) -> None:
        if self._refusal is not None:
            raise StoreError(self._refusal)
        if not self.client.connected:
            raise StoreUnavailable(
                f"no ZooKeeper answered at {self.hosts} within {timeout_seconds:g} s: is it running, and is the "
                'address right? `zookeeper="embedded"` starts one'
                f"{self.advice}"
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
        self.is_closed = True
        self._connected.set()  # wakes those that wait for a connection that will not come
        with self._life:
            self._stop_client()
            self.client.close()

    def _noticed(self, error: BaseException) -> None:
        """Note what kazoo logs of a connection; decide whether a start is in vain."""
        self.trouble = error
        if isinstance(error, NOT_ACCEPTED):
            self._refusal = login_refusal(self._user, self.hosts)
            self.settled.set()
        elif (refusal := tls_refusal(error, self.hosts)) is not None:
            self._servers_refused += 1
            if self._servers_refused >= len(self.client.hosts):  # each was asked
                self._refusal = refusal
                self.settled.set()

    def regain(self) -> None:
        """Follow the server's address, in a thread, until there is a connection again."""
        threading.Thread(target=self._regain, name="kinesis-spout-session", daemon=True).start()

    def _regain(self) -> None:
        """While there is no connection: follow the server's address; after a while, begin a new session."""
        silence_seconds = NEW_SESSION_AFTER_TIMEOUTS * self._session_timeout_seconds
        new_session_at = self._clock.monotonic() + silence_seconds
        renewed = False
        while not self._connected.wait(_LOOK_SECONDS):
            with self._life:
                if self.is_closed:
                    return
                self._follow()
                if not renewed and self._clock.monotonic() >= new_session_at:
                    _log.warning(
                        "no connection to ZooKeeper at %s has held for %g s: a new session begins",
                        self.hosts,
                        silence_seconds,
                    )
                    # Forgets the session and the last transaction seen, and connects as a new client does.
                    self._stop_client()
                    self.client.start_async()
                    renewed = True

    def begin_again(self) -> None:
        """Begin a new session, in a thread, if kazoo has given up."""
        has_given_up = self.client.client_state in (KeeperState.AUTH_FAILED, KeeperState.CLOSED)
        if has_given_up and self.is_started and not self._stops_client:
            threading.Thread(target=self._begin_again, name="kinesis-spout-session", daemon=True).start()

    def _begin_again(self) -> None:
        self._connected.wait(_PAUSE_SECONDS)  # or until this session is closed
        with self._life:
            if not self.is_closed:
                # Not stopped before: the request to close would wait for the new connection.
                self.client.start_async()

    def _follow(self) -> None:
        """Point the next attempt to connect to the server's present address."""
        if self._server is not None and self._server.connect_string != self.hosts:
            self.hosts = self._server.connect_string
            self.client.set_hosts(self.hosts)
