"""The one table that translates kazoo's errors, and advice about them.

Four answers are no failures but facts that the caller asked about: no such node, node exists, another
version, not empty. They pass untranslated, and are handled where they are expected.

A server that refuses us, or that we refuse, must be distinguished from one that is only away: kazoo tries
again in both cases, and says why only in its log (see ``KazooLog``).
"""

import ssl
from typing import Final

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

NOT_ACCEPTED = (AuthFailedError, SASLException, SessionClosedRequireSaslError)
"""Errors that kazoo raises, without trying again, if a server does not accept our credentials. A connection
that is cut while the server checks them looks the same to kazoo."""

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
    '`zookeeper_acl="creator"` a client that they know: by `zookeeper_user`, or by a certificate that they ask for'
)

_CHECK: Final = (
    "check `zookeeper_user`, `zookeeper_password` and `zookeeper_auth`, and that the servers know this user (for "
    "'sasl-digest': in the section Server of their JAAS file)"
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
    """Return the error of this package with the same meaning. Raise it ``from error``."""
    meaning = _MEANINGS.get(type(error))
    if meaning is None:
        return StoreError(f"ZooKeeper answered with an unexpected error: {error!r}; see the server's log")
    kind, text = meaning
    return kind(text)


def tls_refusal(error: BaseException, hosts: str) -> str | None:
    """Say which side refused the other's certificate, and what to do; None if neither did."""
    cause = error.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return (
            f"the certificate of ZooKeeper at {hosts} is not accepted: {cause.verify_message}. Let "
            "`zookeeper_tls_ca` name a file with the certificate of the CA that signed it; and connect by a name "
            'that is in it, or do not have the name compared: `zookeeper_tls_verify="ca"`'
        )
    if isinstance(cause, ssl.SSLError) and "ALERT" in (cause.reason or ""):
        return (
            f"ZooKeeper at {hosts} refuses TLS with this client: {cause.reason}. Where it asks for a certificate, "
            "`zookeeper_tls_certificate` and `zookeeper_tls_key` give one, which it must trust"
        )
    return None


def login_refusal(user: str | None, hosts: str) -> str:
    if user is None:
        return f"ZooKeeper at {hosts} asks for credentials: set `zookeeper_user`, and `zookeeper_auth` as it asks"
    return f"ZooKeeper at {hosts} does not accept the credentials of {user!r}: {_CHECK}"


def login_unanswered(user: str, hosts: str, seconds: float) -> str:
    return (
        f"ZooKeeper at {hosts} has not answered to the credentials of {user!r} within {seconds:g} s: {_CHECK}"
    )


def advice(trouble: BaseException | None, *, speaks_tls: bool) -> str:
    """Say what was wrong with the last attempt to connect, and what a server that hangs up may want."""
    if trouble is None:
        return ""
    cause = trouble.__context__
    if speaks_tls:
        hint = "; is it the port for TLS?" if isinstance(cause, ssl.SSLError) else ""
    else:
        hint = "; does the port want TLS (`zookeeper_tls=True`)?" if "broken" in str(trouble) else ""
    return f"; the last attempt: {trouble}{hint}"
