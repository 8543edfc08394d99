"""Lets requests in or refuses them, and tells the browser what it may do with the answers.

A request that changes something must come from a page of this server: ``Sec-Fetch-Site`` says so in every
browser of today, and ``Origin`` in older ones. Without a token, the name in ``Host`` must be this machine's, or
another site could have its own name lead here.
"""

import base64
import binascii
import hmac
import logging
import time
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from typing import Final
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kinesis_spout.model.logs import Allowance
from kinesis_spout.operations.audit import Operator
from kinesis_spout.web.page_settings import PageSettings, is_loopback

_log = logging.getLogger(__name__)

COOKIE: Final = "kinesis_spout_web"
DOOR: Final = "web page"

_CONTENT_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "content-security-policy": _CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_NAMES_OF_VISITORS: Final = (
    "x-forwarded-user",
    "x-forwarded-email",
    "x-auth-request-user",
    "x-auth-request-email",
    "remote-user",
)
"""The headers in which proxies say who somebody is."""
_MOST_LINES: Final = 10
"""The most refused sign-ins that the log has line by line in a minute; it has the number of further ones."""
_OPEN: Final = ("/login", "/static/")
"""Paths that are shown before the token is known."""


class SignIns:
    """Logs the sign-ins that are refused: where they come from, and never what was given as the token. Mutable."""

    def __init__(self, settings: PageSettings) -> None:
        self._settings = settings
        self._lines = Allowance(_MOST_LINES)

    def refuse(self, scope: Scope, name: str = "") -> None:
        """Log one from the client of ``scope``; ``name`` is what it calls itself."""
        if not self._lines.takes_one(time.monotonic()):
            return
        left_out = self._lines.take_left_out()
        address = _address((scope.get("client") or ("unknown",))[0])
        # A user who mistakes one field for the other gives the token as the name, perhaps cut.
        token = self._settings.token or ""
        said = "" if token in name or token.startswith(name) else f" as {name!r}"
        before = f"; {left_out:,} more were refused before it" if left_out else ""
        _log.warning("refused a sign-in from %s%s: wrong token%s", address, said, before)


class Guard:
    """An ASGI middleware, around everything."""

    def __init__(self, app: ASGIApp, settings: PageSettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(scope)
        await (self._app if refusal is None else refusal)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers, settings = Headers(scope=scope), self._settings
        if not (settings.token or settings.behind_proxy) and not _is_of_this_machine(headers, settings):
            return PlainTextResponse(
                f"expected to be asked as {settings.address}, got {headers.get('host', '')!r}\n", 421
            )
        if scope["method"] not in {"GET", "HEAD"} and not _is_same_origin(headers):
            return PlainTextResponse(
                "refused: this request does not come from a page of this server (Sec-Fetch-Site, Origin)\n",
                403,
            )
        path = scope["path"]
        if settings.token is not None and "authorization" in headers and visitor(headers, settings) is None:
            scope["app"].state.sign_ins.refuse(scope)
        if settings.token is None or path.startswith(_OPEN) or visitor(headers, settings) is not None:
            return None
        if scope["method"] != "GET":
            return PlainTextResponse("expected the token of this server: see /login\n", 401)
        query = scope["query_string"].decode("latin-1")
        return RedirectResponse(f"/login?next={quote(path + ('?' + query if query else ''), safe='')}", 303)


def _address(said: str) -> str:
    """The address of a client as the log may have it: a proxy may pass on any text as one."""
    try:
        return str(ip_address(said.partition("%")[0]))
    except ValueError:
        return repr(said[:100])


def visitor(headers: Headers, settings: PageSettings) -> str | None:
    """Name the visitor; None where a token is wanted and was not given."""
    if settings.token is not None:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and settings.is_token(token):
            return "token"
        return _name_in_cookie(headers, settings)
    if settings.behind_proxy:
        said = (headers.get(name) for name in _NAMES_OF_VISITORS)
        return next(filter(None, said), "somebody behind the proxy")
    return Operator.here().who


def cookie_value(name: str, settings: PageSettings) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode() + "." + settings.signed(name)


def _name_in_cookie(headers: Headers, settings: PageSettings) -> str | None:
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        encoded, _, signature = ("" if cookie is None else cookie.value).partition(".")
        name = base64.urlsafe_b64decode(encoded).decode()
    except (CookieError, binascii.Error, UnicodeError):
        return None
    return name if hmac.compare_digest(signature.encode(), settings.signed(name).encode()) else None


def _is_of_this_machine(headers: Headers, settings: PageSettings) -> bool:
    try:
        host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
    except ValueError:  # brackets that are not an IPv6 address
        return False
    return is_loopback(host) or host == settings.host


def _is_same_origin(headers: Headers) -> bool:
    site: str | None = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin: str | None = headers.get("origin")
    host: str | None = headers.get("host")
    return origin is not None and host is not None and origin.partition("://")[2] == host
