"""What ZooKeeper's answers mean to us: the one table that translates kazoo's errors.

Four answers are no failures but facts that the caller asked about: no such node, node exists, another
version, not empty. They pass untranslated, and are handled where they are expected.
"""

from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    InvalidACLError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.threading import KazooTimeoutError

from kinesis_spout.errors import StoreError, StoreUnavailable

ANSWERS = (NoNodeError, NodeExistsError, BadVersionError, NotEmptyError)
"""Facts, not failures."""

FAILURES = (KazooException, KazooTimeoutError)
"""Everything else that kazoo raises; ANSWERS are KazooExceptions too, and must be caught first."""

_CREDENTIALS = (
    "ZooKeeper refuses this client: expected nodes that are open to everybody, because there is no setting for "
    "ZooKeeper's credentials; check the ACLs of the nodes below zookeeper_root"
)

_MEANINGS: dict[type[Exception], tuple[type[StoreError], str]] = {
    ConnectionLoss: (StoreUnavailable, "the connection to ZooKeeper was lost"),
    ConnectionClosedError: (StoreUnavailable, "the connection to ZooKeeper is closed"),
    SessionExpiredError: (StoreUnavailable, "the ZooKeeper session has expired"),
    SessionMovedError: (StoreUnavailable, "the ZooKeeper session moved to another server"),
    OperationTimeoutError: (StoreUnavailable, "ZooKeeper did not answer in time"),
    KazooTimeoutError: (StoreUnavailable, "ZooKeeper did not answer in time"),
    AuthFailedError: (StoreError, _CREDENTIALS),
    NoAuthError: (StoreError, _CREDENTIALS),
    InvalidACLError: (StoreError, _CREDENTIALS),
}


def translated(error: Exception) -> StoreError:
    """Give the error of this package that means the same. Raise it ``from error``."""
    meaning = _MEANINGS.get(type(error))
    if meaning is None:
        return StoreError(f"ZooKeeper answered with an unexpected error: {error!r}; see the server's log")
    kind, text = meaning
    return kind(text)
