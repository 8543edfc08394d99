"""Tells a server that refuses us, or that we refuse, from one that is only away.

kazoo tries again in either case, and says why in its log alone. So its log is read here, on the way.
"""

import logging
import ssl
import sys
from collections.abc import Callable
from typing import Any, Final

from kazoo.exceptions import AuthFailedError, SASLException, SessionClosedRequireSaslError

NOT_ACCEPTED = (AuthFailedError, SASLException, SessionClosedRequireSaslError)
"""What kazoo raises where a server does not take our credentials, and tries no more. A connection that is cut
while the server looks at them is the same to kazoo."""


class KazooLog(logging.LoggerAdapter[logging.Logger]):
    """kazoo's log; reports every error in it.

    Args:
        log: where the lines go.
        noticed: is given each error, on kazoo's connection thread: it must not block.
    """

    def __init__(self, log: logging.Logger, noticed: Callable[[BaseException], None]) -> None:
        super().__init__(log)
        self._noticed = noticed

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        """Leave the line as it is."""
        return msg, kwargs

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Report the error that the line speaks of, if it does; then log it."""
        traced = kwargs.get("exc_info")
        for error in (*args, sys.exc_info()[1] if traced is True else traced):
            if level >= logging.WARNING and isinstance(error, BaseException):
                self._noticed(error)
        super().log(level, msg, *args, **kwargs, stacklevel=2)


def tls_refusal(error: BaseException, hosts: str) -> str | None:
    """Say which side refused the other's certificate, and what to do; None if neither did."""
    cause = error.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return (
            f"the certificate of ZooKeeper at {hosts} is not accepted: {cause.verify_message}. Let "
            "`zookeeper_tls_ca` name a file with the certificate of the CA that signed it; and connect by a name "
            "that is in it, or do not have the name compared: `zookeeper_tls_verify=ca`"
        )
    if isinstance(cause, ssl.SSLError) and "ALERT" in (cause.reason or ""):
        return (
            f"ZooKeeper at {hosts} refuses TLS with this client: {cause.reason}. Where it asks for a certificate, "
            "`zookeeper_tls_certificate` and `zookeeper_tls_key` give one, which it must trust"
        )
    return None


def login_refusal(user: str | None, hosts: str) -> str:
    """Say that credentials are not accepted, and what to do."""
    if user is None:
        return f"ZooKeeper at {hosts} asks for credentials: set `zookeeper_user`, and `zookeeper_auth` as it asks"
    return f"ZooKeeper at {hosts} does not accept the credentials of {user!r}: {_CHECK}"


def login_unanswered(user: str, hosts: str, seconds: float) -> str:
    """Say that nothing is said of credentials, and what to do."""
    return (
        f"ZooKeeper at {hosts} has not answered to the credentials of {user!r} within {seconds:g} s: {_CHECK}"
    )


_CHECK: Final = (
    "check `zookeeper_user`, `zookeeper_password` and `zookeeper_auth`, and that the servers know this user (for "
    "'sasl-digest': in the section Server of their JAAS file)"
)


def advice(trouble: BaseException | None, *, speaks_tls: bool) -> str:
    """Say what was the matter with the last attempt to connect, and what a server that hangs up may want."""
    if trouble is None:
        return ""
    cause = trouble.__context__
    if speaks_tls:
        hint = "; is it the port for TLS?" if isinstance(cause, ssl.SSLError) else ""
    else:
        hint = "; does the port want TLS (`zookeeper_tls=True`)?" if "broken" in str(trouble) else ""
    return f"; the last attempt: {trouble}{hint}"
