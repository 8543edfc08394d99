"""Elections: kazoo's ``Lock``, a fresh one for each campaign; its node's creation id is the term's token.

``{path}/queue/…``   ephemeral: the candidates, in the order of their coming; the first one leads
``{path}/occupied``  which term's units of work may be under way; kept when a session ends
"""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from kazoo.exceptions import BadVersionError, CancelledError, LockTimeout, NodeExistsError, NoNodeError

from kinesis_spout.model.errors import StoreUnavailable
from kinesis_spout.ports import Elected
from kinesis_spout.zookeeper.kazoo_errors import FAILURES
from kinesis_spout.zookeeper.zookeeper_session import ZooKeeperSession

_log = logging.getLogger(__name__)

_NO_TERM: Final = b""
_SEQUENCE_DIGITS: Final = 10
"""The digits of the numbers in the candidates' nodes."""


class ZooKeeperElection:
    """The port ``Election`` on ZooKeeper, at ``path``, which is made if missing. Mutable.

    ``close`` closes the started session, which ends the candidacy. ``campaign_seconds`` is how long one
    campaign waits; about a session time-out by default.
    """

    def __init__(
        self,
        name: str,
        path: str,
        session: ZooKeeperSession,
        member: str,
        close: Callable[[], None] | None = None,
        *,
        campaign_seconds: float | None = None,
    ) -> None:
        self.name = name
        self._session = session
        self._client = session.client
        self._member = member
        self._queue = f"{path}/queue"
        self._occupied = f"{path}/occupied"
        self.session_timeout_seconds = session.session_timeout_seconds
        self.close = close or session.close
        self._campaign_seconds = campaign_seconds or self.session_timeout_seconds
        self._lock = threading.Lock()
        """Guards the two below."""
        self._candidacy: Any = None
        self._is_cancelled = False
        self._left: list[Elected] = []
        """Terms that ended while there was no connection: their nodes may still exist."""
        self._own_nodes: list[str] = []
        """The beginnings of the names of nodes of campaigns that ended in vain. kazoo does not say when it
        could not remove one, and a candidate behind its own older node would wait for itself as long as its
        session lives."""

    def campaign(self) -> Elected | None:
        self._session.ready()
        while self._left:
            self._clear(self._left[-1])
            self._left.pop()
        self._leave_queue()
        candidacy = self._client.Lock(self._queue, self._member)
        self._own_nodes.append(candidacy.prefix)
        with self._lock:
            if self._is_cancelled:
                return None
            self._candidacy = candidacy
        try:
            if not candidacy.acquire(timeout=self._campaign_seconds):
                return None
        except (LockTimeout, CancelledError, NoNodeError):  # the last: somebody removed the queue
            return None
        except FAILURES as error:
            raise self._session.translated(error) from error
        finally:
            self._candidacy = None
        self._own_nodes.pop()
        return self._elected(f"{self._queue}/{candidacy.node}")

    def _leave_queue(self) -> None:
        if self._own_nodes:
            for node in self._session.children(self._queue):
                if node.startswith(tuple(self._own_nodes)):
                    self._session.delete(f"{self._queue}/{node}")
            self._own_nodes.clear()

    def _elected(self, node: str) -> Elected | None:
        elected = Elected(token=0, node=node, asked_at=self._session.clock.monotonic())
        try:
            stat = self._session.answer(self._client.exists_async(node))
        except StoreUnavailable:
            self._left.append(elected)
            raise
        if stat is None:
            return None
        return Elected(token=stat.czxid, node=node, asked_at=elected.asked_at)

    def confirm(self, elected: Elected, wait_seconds: float) -> float | None:
        asked_at = self._session.clock.monotonic()
        try:
            self._client.sync_async(self._queue)  # the server may be behind the others
            stat = self._client.exists_async(elected.node).get(timeout=wait_seconds)
        except FAILURES as error:
            raise self._session.translated(error) from error
        return None if stat is None or stat.czxid != elected.token else asked_at

    def resign(self, elected: Elected) -> None:
        """Remove the term's nodes; what cannot be removed now is removed before the next campaign."""
        try:
            self._session.await_connection(self._session.clock.monotonic())  # or not at all
            self._clear(elected)
        except StoreUnavailable as error:
            _log.warning("%s; the end of term %d is noted when it is back", error, elected.token)
            self._left.append(elected)

    def _clear(self, elected: Elected) -> None:
        occupied = self._session.found(self._client.get_async(self._occupied))
        if occupied is not None and occupied[0] == _mark(elected):
            # Another term may have begun, and written its own, since that was read.
            with suppress(BadVersionError):
                version = occupied[1].version
                self._session.found(self._client.set_async(self._occupied, _NO_TERM, version=version))
        self._session.delete(elected.node)

    def occupy(self, elected: Elected) -> None:
        with suppress(NodeExistsError):
            self._session.answer(self._client.create_async(self._occupied, _NO_TERM, makepath=True))
        transaction = self._client.transaction()
        transaction.check(elected.node, -1)
        transaction.set_data(self._occupied, _mark(elected))
        with suppress(NoNodeError):  # the term is over, as its next question will tell
            self._session.committed(transaction.commit_async())

    def is_occupied(self) -> bool:
        found = self._session.found(self._client.get_async(self._occupied))
        return found is not None and bool(found[0] != _NO_TERM)

    def leader(self) -> str | None:
        """Return the member that leads, or is about to; None without candidates."""
        nodes = self._session.children(self._queue)
        if not nodes:
            return None
        first = min(nodes, key=lambda node: node[-_SEQUENCE_DIGITS:])
        found = self._session.found(self._client.get_async(f"{self._queue}/{first}"))
        return None if found is None else str(found[0].decode())

    def cancel(self) -> None:
        with self._lock:
            self._is_cancelled = True
            candidacy = self._candidacy
        if candidacy is not None:
            candidacy.cancel()


def _mark(elected: Elected) -> bytes:
    return str(elected.token).encode()
