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
    SASLException,
    SessionClosedRequireSaslError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.threading import KazooTimeoutError

from kinesis_spout.model.errors import StoreError, StoreUnavailable

ANSWERS = (NoNodeError, NodeExistsError, BadVersionError, NotEmptyError)
"""Facts, not failures."""

FAILURES = (KazooException, KazooTimeoutError)
"""Everything else that kazoo raises; ANSWERS are KazooExceptions too, and must be caught first."""

_NOT_ALLOWED = (
    "ZooKeeper does not let this client use a node below `zookeeper_root`: expected the credentials that the "
    "node's ACL asks for: check `zookeeper_user`, `zookeeper_password` and `zookeeper_auth`, and which "
    "`zookeeper_acl` the process had that made the node"
)
_NOT_KNOWN = (
    "ZooKeeper does not accept this client's credentials: check `zookeeper_user`, `zookeeper_password` and "
    "`zookeeper_auth`"
)
_NO_ACL = (
    "ZooKeeper does not take the ACL of a new node: expected a scheme that the servers have, and for "
    "`zookeeper_acl=creator` a client that they know: by `zookeeper_user`, or by a certificate that they ask for"
)

_MEANINGS: dict[type[Exception], tuple[type[StoreError], str]] = {
    ConnectionLoss: (StoreUnavailable, "the connection to ZooKeeper was lost"),
    ConnectionClosedError: (StoreUnavailable, "the connection to ZooKeeper is closed"),
    SessionExpiredError: (StoreUnavailable, "the ZooKeeper session has expired"),
    SessionMovedError: (StoreUnavailable, "the ZooKeeper session moved to another server"),
    OperationTimeoutError: (StoreUnavailable, "ZooKeeper did not answer in time"),
    KazooTimeoutError: (StoreUnavailable, "ZooKeeper did not answer in time"),
    AuthFailedError: (StoreError, _NOT_KNOWN),
    SASLException: (StoreError, _NOT_KNOWN),
    SessionClosedRequireSaslError: (StoreError, _NOT_KNOWN),
    NoAuthError: (StoreError, _NOT_ALLOWED),
    InvalidACLError: (StoreError, _NO_ACL),
}


def translated(error: Exception) -> StoreError:
    """Give the error of this package that means the same. Raise it ``from error``."""
    meaning = _MEANINGS.get(type(error))
    if meaning is None:
        return StoreError(f"ZooKeeper answered with an unexpected error: {error!r}; see the server's log")
    kind, text = meaning
    return kind(text)
