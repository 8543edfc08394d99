"""Credentials that are looked up again, and signatures by the service's clock: what botocore lacks.

botocore looks credentials up once. It renews only those that say when they expire, and a source that is bad for a
moment raises whatever its answer breaks. It signs by this machine's clock alone. Here

* the last good keys stay in use until there are others; AWS decides whether they are still good,
* keys that AWS refuses are looked up anew, in all sources: another program may have renewed a file,
* keys that no header can carry are refused where they are read, without showing them,
* a signature that is refused for its time is made again by the service's clock, as its ``Date`` says.
"""

import logging
import re
import threading
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from types import SimpleNamespace
from typing import Any, Final
from xml.etree import ElementTree as ET

from botocore.credentials import Credentials, ReadOnlyCredentials, RefreshableCredentials
from botocore.exceptions import BotoCoreError, ClientError, CredentialRetrievalError, NoCredentialsError

from kinesis_spout.kinesis.calls import SignatureRefused, UnusableConfig
from kinesis_spout.kinesis.wire.sigv4 import (
    SIGNATURE_REFUSED,
    RequestTemplate,
    SigningSecond,
    signed_by,
    text,
)
from kinesis_spout.model.errors import KinesisSpoutError

REST_SECONDS: Final = 5.0
"""Between two look-ups, if the first failed or changed nothing."""
_FIRST_ERROR: Final = 300
_LEAST_SKEW_SECONDS: Final = 240
"""AWS accepts 300 s, and 900 s with some services."""
_OF_TIME: Final = frozenset({"RequestExpired", "RequestTimeTooSkewed", "RequestInTheFuture"})
_SAID_OF_TIME: Final = ("Signature expired", "Signature not yet current")
_MOST_TRIES: Final = 3
"""Tries of one call, at most."""
_VARIABLES: Final = {
    "access_key": "AWS_ACCESS_KEY_ID",
    "secret_key": "AWS_SECRET_ACCESS_KEY",
    "token": "AWS_SESSION_TOKEN",
}
_SIGNER: Final = "kinesis_spout_signer"
SIGNED: Final = "kinesis_spout_signed"
_TRIES: Final = "kinesis_spout_tries"
"""Keys of a call's context: what signs it, the access key and token that signed it, the answers so far."""

_log = logging.getLogger(__name__)


class RenewedCredentials:
    """The credentials of a session, in the shape of botocore's. Thread-safe. Shows no secrets.

    Args:
        look_up: finds credentials anew, in all their sources; None if there are none.
        monotonic: a clock in seconds.
    """

    def __init__(
        self, look_up: Callable[[], Credentials | None], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._look_up = look_up
        self._monotonic = monotonic
        self._found: Credentials | None = None
        """None after a failure: the next look-up begins anew. Under the lock, like all that is assigned below."""
        self._frozen: ReadOnlyCredentials | None = None
        self._rests_until = 0.0
        self._failure: Exception | None = None
        """Why the last look-up failed."""
        self._lock = threading.Lock()
        self.were_accepted = False
        """True once AWS accepted keys from here."""

    @property
    def method(self) -> str:
        """The source that botocore found the keys in; empty before the first look-up."""
        return "" if self._found is None else str(self._found.method)

    @property
    def last(self) -> ReadOnlyCredentials | None:
        """The keys that were found last; None: there are none yet."""
        return self._frozen

    @property
    def are_due(self) -> bool:
        """Return whether ``get_frozen_credentials`` would look up, which blocks."""
        if self._frozen is None:
            return True
        found = self._found
        is_due = found is None or (isinstance(found, RefreshableCredentials) and found.refresh_needed())
        return is_due and self._monotonic() >= self._rests_until

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        """Return the keys to sign with; while one thread renews them, others go on with the old ones.

        Raises:
            UnusableConfig: no header can carry a key.
            BotoCoreError, ClientError: no look-up succeeded so far.
        """
        if self.are_due and self._lock.acquire(blocking=self._frozen is None):
            try:
                if self.are_due:
                    self._renew()
            finally:
                self._lock.release()
        assert self._frozen is not None, "the look-up raised"
        return self._frozen

    def renewed_after(self, refused: tuple[str, str | None]) -> bool:
        """Return whether there are other keys than those that AWS refused; may look them up anew."""
        with self._lock:
            before = self._frozen
            if before is not None and refused != (before.access_key, before.token or None):
                return True  # another thread renewed them
            if self._monotonic() >= self._rests_until:
                self._found = None
                self._renew()
            return self._frozen != before

    def refusal(self) -> str:
        """Say of keys that were accepted before why there are no others."""
        why = "" if self._failure is None else f"; looking them up fails: {_said(self._failure)}"
        return (
            f"AWS accepted the credentials ({self.method or 'the last ones'}) before, and they are looked up "
            f"again at most every {REST_SECONDS:g} s{why}. If this continues, renew them where they come from"
        )

    def get_deferred_property(self, name: str) -> Callable[[], Any]:
        """See botocore; it asks for the account of the keys."""
        return lambda: getattr(self.get_frozen_credentials(), name, None)

    def _renew(self) -> None:
        """Under the lock. A failure counts only if there are no keys yet; else it is logged once."""
        self._rests_until = self._monotonic() + REST_SECONDS
        try:
            found = self._found or self._look_up()
            if found is None:
                raise NoCredentialsError  # noqa: TRY301 - one place decides what a failure means
            frozen = found.get_frozen_credentials()
            _check(frozen, str(found.method))
        except Exception as error:
            self._found = None
            if self._frozen is None:
                if isinstance(error, BotoCoreError | ClientError | KinesisSpoutError):
                    raise
                raise CredentialRetrievalError(provider="credentials", error_msg=_said(error)) from error
            if self._failure is None:
                _log.warning(
                    "Credentials could not be renewed: %s; the last ones stay in use, and the look-up is repeated",
                    _said(error),
                )
            self._failure = error
        else:
            if self._failure is not None:
                _log.warning("Credentials could be renewed again")
            if self._frozen is None:
                self._rests_until = 0.0
            self._found, self._frozen, self._failure = found, frozen, None


class Signing:
    """The credentials of a session's clients, and the clock that they sign by. Thread-safe."""

    def __init__(self, look_up: Callable[[], Credentials | None]) -> None:
        self.credentials = RenewedCredentials(look_up)
        self.skew_seconds = 0
        """The service's clock less this machine's, if it refused a signature for that; else 0."""

    def now(self) -> int:
        """Return the time to sign with, in whole seconds since the epoch."""
        return int(time.time()) + self.skew_seconds

    def serve(self, session: Any) -> None:
        """Have all clients that a session makes from now on sign with these credentials, by this clock."""
        provider = SimpleNamespace(load_credentials=lambda: self.credentials)
        session.register_component("credential_provider", provider)
        session.register("needs-retry.kinesis", self._judge)
        self._sign_by(session)

    def serve_sources(self, session: Any) -> None:
        """Have the clients of a session that finds credentials sign by the same clock."""
        session.register("needs-retry", self._judge)
        session.register("before-parse.sts", _refuse_unreadable)
        self._sign_by(session)

    def _sign_by(self, session: Any) -> None:
        session.register("before-sign", _note_signer)
        session.register("request-created", self.sign)  # after botocore's: that of a longer name comes first

    def sign(self, *, request: Any, **_event: object) -> None:
        """Note who signed a request of botocore's, and sign it again if this machine's clock is wrong."""
        signer = request.context.pop(_SIGNER, None)
        request.context[SIGNED] = signed_by(request.headers)
        template = (
            RequestTemplate.of(request.method, request.url, request.headers) if self.skew_seconds else None
        )
        if template is None:
            return
        credentials = signer.get_auth_instance(
            template.scope.service, template.scope.region, "v4"
        ).credentials
        signing = SigningSecond(template, credentials, self.now())
        for name, value in {**signing.headers, "Authorization": signing.authorization(request.body)}.items():
            del request.headers[name]
            request.headers[name] = value

    def goes_again(self, response: Any, operation: Any, context: dict[str, Any]) -> bool:
        """Return whether a call is made again at once: the clock is known now, or there are other keys.

        Raises:
            SignatureRefused: no; but it may be accepted later.
        """
        error = response[1].get("Error", {})
        code, said = str(error.get("Code", "")), str(error.get("Message", "")).rstrip(".")
        context[_TRIES] = context.get(_TRIES, 0) + 1
        if code in _OF_TIME or (code in SIGNATURE_REFUSED and said.startswith(_SAID_OF_TIME)):
            if context[_TRIES] <= _MOST_TRIES and self._learns_time(
                text(response[0].headers.get("Date", ""))
            ):
                return True
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            why = f"this machine's clock says {now}: set it, by NTP for example"
        elif operation.service_model.service_name != "kinesis":
            return False  # its keys are not these
        elif code not in SIGNATURE_REFUSED:
            self.credentials.were_accepted |= not code
            return False
        elif context[_TRIES] <= _MOST_TRIES and self.credentials.renewed_after(
            context.get(SIGNED, ("", None))
        ):
            return True
        elif not self.credentials.were_accepted:
            return False
        else:
            why = self.credentials.refusal()
        raise SignatureRefused(f"{operation.name} failed: {code}: {said}; {why}")

    def _judge(self, *, response: Any, operation: Any, request_dict: Any, **_event: object) -> int | None:
        is_again = response is not None and self.goes_again(response, operation, request_dict["context"])
        return 0 if is_again else None

    def _learns_time(self, date: str) -> bool:
        before = self.skew_seconds
        try:
            ahead = parsedate_to_datetime(date).timestamp() - time.time()
        except (ValueError, OverflowError):
            ahead = before
        is_new = abs(ahead - before) >= _LEAST_SKEW_SECONDS
        # One that is not new did not help.
        self.skew_seconds = round(ahead) if is_new and abs(ahead) >= _LEAST_SKEW_SECONDS else 0
        if self.skew_seconds:
            _log.warning(
                "This machine's clock is %d s %s the service's: calls are signed by the service's; set this "
                "machine's clock, by NTP for example",
                abs(ahead),
                "behind" if ahead > 0 else "ahead of",
            )
        elif before:
            _log.warning("Calls are signed by this machine's clock again")
        return is_new


def _note_signer(*, request: Any, request_signer: Any, **_event: object) -> None:
    request.context[_SIGNER] = request_signer


def _refuse_unreadable(*, response_dict: dict[str, Any], **_event: object) -> None:
    """Refuse an answer that is cut off: botocore's error would show it, with the keys in it."""
    if response_dict["status_code"] < _FIRST_ERROR:
        try:
            ET.fromstring(response_dict["body"])  # noqa: S314 - STS's own, over TLS
        except ET.ParseError as error:
            raise CredentialRetrievalError(
                provider="sts", error_msg=f"the answer is no XML: {error}"
            ) from None


def _check(frozen: ReadOnlyCredentials, method: str) -> None:
    if not (frozen.access_key and frozen.secret_key):
        raise CredentialRetrievalError(provider=method, error_msg="a key is missing")
    for part, variable in _VARIABLES.items():
        if not re.fullmatch(r"[!-~]*", getattr(frozen, part) or ""):
            where = (
                f"the variable {variable}" if method == "env" else f"the {part.replace('_', ' ')} ({method})"
            )
            raise UnusableConfig(
                f"{where}: expected printable ASCII characters, got some that no HTTP header can carry, a line "
                "end or a space for example; the value is not shown"
            )


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
