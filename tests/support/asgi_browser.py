"""A browser without a screen for an ASGI application: requests in this process, cookies, redirects on demand."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def said(self) -> str:
        """What a person reads: without tags, in one line."""
        return " ".join(re.sub(r"<[^>]*>", " ", self.text).split())


@dataclass(slots=True, kw_only=True)
class AsgiBrowser:
    """Mutable: keeps cookies."""

    app: Any
    host: str = "127.0.0.1:8080"
    cookies: dict[str, str] = field(default_factory=dict)

    def get(self, address: str, **headers: str) -> Answer:
        return self._ask("GET", address, b"", headers)

    def post(self, address: str, fields: Mapping[str, str] | None = None, **headers: str) -> Answer:
        """Send a form, from a page of the same server unless headers say otherwise."""
        headers = {"sec-fetch-site": "same-origin"} | headers
        return self._ask("POST", address, urlencode(fields or {}).encode(), headers)

    def raw(self, method: str, address: str, body: bytes, **headers: str) -> Answer:
        return self._ask(method, address, body, headers)

    def _ask(self, method: str, address: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        split = urlsplit(address)
        sent = {"host": self.host, "cookie": "; ".join(f"{k}={v}" for k, v in self.cookies.items())}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(split.path),
            "raw_path": split.path.encode(),
            "query_string": split.query.encode(),
            "root_path": "",
            "headers": [(k.encode(), v.encode()) for k, v in sent.items() if v],
            "client": ("127.0.0.1", 50_000),
            "server": ("127.0.0.1", 8080),
            "state": {},
        }
        messages: list[dict[str, Any]] = []
        bodies = [body]

        async def receive() -> dict[str, Any]:
            if bodies:
                return {"type": "http.request", "body": bodies.pop(), "more_body": False}
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: dict[str, Any]) -> None:
            messages.append(message)

        asyncio.run(self.app(scope, receive, send))
        start, *parts = messages
        answered = [(name.decode(), value.decode()) for name, value in start["headers"]]
        for name, value in answered:
            if name == "set-cookie":
                key, _, rest = value.partition("=")
                self.cookies[key] = rest.partition(";")[0]
        return Answer(
            status=start["status"],
            headers=dict(answered),
            body=b"".join(part.get("body", b"") for part in parts),
        )
