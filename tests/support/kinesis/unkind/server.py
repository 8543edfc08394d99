"""The endpoint's process: HTTP over sockets, so that it can send what no server would.

``python -m tests.support.kinesis.unkind.server PORT [CERTIFICATE]`` prints its two ports, and ends with its
standard input. The second one is for who prepares and looks: the same account, always kind.
"""

import asyncio
import base64
import json
import os
import ssl
import sys
import time
from collections import Counter, deque
from contextlib import suppress
from email.utils import formatdate
from typing import Any, Final, NamedTuple

from tests.support.kinesis.unkind.account import Account, AwsError
from tests.support.kinesis.unkind.behaviours import (
    ANSWERS_LOST,
    INSTEAD,
    ON_THE_WAY,
    Behaviour,
    Call,
    Switch,
    Table,
)
from tests.support.kinesis.unkind.controls import Controls
from tests.support.kinesis.unkind.operations import Operations
from tests.support.kinesis.unkind.sending import Peer, send_unkindly
from tests.support.kinesis.unkind.subscriptions import Begin, Subscriptions

JSON: Final = "application/x-amz-json-1.1"
CONTROL: Final = "/unkind"
_MOST_HEAD: Final = 1 << 20
_REMEMBERED: Final = 10_000
_REASONS: Final = {200: "OK", 302: "Found", 307: "Temporary Redirect", 400: "Bad Request", 403: "Forbidden",
                   404: "Not Found", 407: "Proxy Authentication Required", 408: "Request Time-out",
                   413: "Payload Too Large", 500: "Internal Server Error", 502: "Bad Gateway",
                   503: "Service Unavailable"}  # fmt: skip


class Request(NamedTuple):
    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def operation(self) -> str:
        return self.headers.get("x-amz-target", "").rpartition(".")[2]

    @property
    def credential(self) -> list[str]:
        """The access key, the day, the region and the service that it was signed with; empty if it was not."""
        signed = self.headers.get("authorization", "").partition("Credential=")[2].partition(",")[0]
        return signed.split("/")

    @property
    def region(self) -> str:
        credential = self.credential
        return credential[2] if len(credential) > 2 else "us-east-1"


class Server:
    """Mutable. One for each port of a process."""

    def __init__(self, account: Account, *, is_kind: bool, begin: Begin | None = None) -> None:
        self.account = account
        self._is_kind = is_kind
        self.table = Table()
        self.operations = Operations(self.account, self.table)
        self.subscriptions = Subscriptions(self.operations, begin)
        self.calls: Counter[str] = Counter()
        self.seen: deque[dict[str, Any]] = deque(maxlen=_REMEMBERED)
        self._connections = 0
        self.peers: set[Peer] = set()
        self.controls = Controls(self)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        number, peer = self._connections, Peer(reader, writer)
        self.peers.add(peer)
        try:
            while (request := await read_request(reader)) is not None:
                if not await self._answer(request, peer, number):
                    break
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # the caller hung up
        finally:
            self.peers.discard(peer)
            with suppress(OSError):
                writer.close()

    async def _answer(self, request: Request, peer: Peer, connection: int) -> bool:
        """Answer a request; False if the connection takes no more."""
        if request.method == "CONNECT":  # it is no proxy
            await peer.send(self._whole(501, b""))
            return False
        if request.target == CONTROL:
            status, document = self.controls.answer(request.body)
            await peer.send(self._whole(status, json.dumps(document).encode()))
            return True
        if not request.operation:
            status, document = self.controls.credentials.answer(request.target)
            await peer.send(self._whole(status, document, content_type="application/json"))
            return True
        asked = json.loads(request.body or b"{}")
        call = self.operations.call(request.operation, request.region, asked)
        self.calls[request.operation] += 1
        self.seen.append(
            {
                "operation": request.operation,
                "request": {name: value for name, value in asked.items() if name != "Records"},
                "headers": request.headers,
                "connection": connection,
                "time": time.time(),
            }
        )
        return await self._call(call, request, asked, peer)

    async def _call(self, call: Call, request: Request, asked: dict[str, Any], peer: Peer) -> bool:
        instead = self.table.drawn(call, *INSTEAD)
        if instead is not None and not instead.how.get("takes_effect"):
            return await self._instead(instead, peer)
        try:
            if not self._is_kind:
                self.controls.credentials.check(request)
            if call.operation == "SubscribeToShard":
                return await self.subscriptions.serve(call, request.region, asked, peer)
            reply = self.operations.answer(call, request.region, asked)
        except AwsError as error:
            if instead is not None:
                return await self._instead(instead, peer)
            whole = self._whole(error.status, _encoded(error.reply))
        else:
            whole = self._whole(200, _encoded(reply))
        if instead is not None:
            self._count_lost(call, asked)
            return await self._instead(instead, peer)
        switch = self.table.drawn(call, *ON_THE_WAY)
        if switch is None:
            await peer.send(whole)
            return True
        if switch.behaviour in ANSWERS_LOST:
            self._count_lost(call, asked)
        return await send_unkindly(switch, whole, self._behind(switch, call), peer)

    def _count_lost(self, call: Call, asked: dict[str, Any]) -> None:
        if call.operation == "PutRecords":
            self.table.records_lost += len(asked["Records"])

    async def _instead(self, switch: Switch, peer: Peer) -> bool:
        how = switch.how
        closes = bool(how.get("closes", False))
        if switch.behaviour is Behaviour.RAW:
            await peer.send(base64.b64decode(how["body"]))
            closes = bool(how.get("closes", True))
        elif switch.behaviour is Behaviour.REPLY:
            body = base64.b64decode(how.get("body", ""))
            kind = how.get("content_type", JSON)
            await peer.send(self._whole(int(how.get("status", 200)), body, kind, how.get("headers", {})))
        else:
            status = int(how.get("status", 502 if switch.behaviour is Behaviour.HTML else 307))
            page = f"<html><head><title>{status}</title></head><body><h1>{status}</h1></body></html>".encode()
            headers = dict(how.get("headers", {}))
            if 300 <= status < 400:
                headers["Location"] = how.get("location", "http://127.0.0.1:9/elsewhere")
            await peer.send(self._whole(status, page, "text/html", headers))
        return not closes

    def _behind(self, switch: Switch, call: Call) -> bytes:
        """Make what comes behind an answer that is right."""
        if switch.behaviour is Behaviour.UNASKED_408:
            return self._whole(408, b"<html>408</html>", "text/html", {"Connection": "close"})
        return self._whole(200, _encoded(self.operations.page_of_others(call) or _NOBODYS_PAGE))

    def _whole(
        self, status: int, body: bytes, content_type: str = JSON, headers: dict[str, str] | None = None
    ) -> bytes:
        lines = [
            f"HTTP/1.1 {status} {_REASONS.get(status, 'Something')}",
            f"x-amzn-RequestId: {os.urandom(8).hex()}",
            f"Date: {formatdate(self.account.now(), usegmt=True)}",
            *([f"Content-Type: {content_type}"] if content_type else []),
            *(f"{name}: {value}" for name, value in (headers or {}).items()),
            f"Content-Length: {len(body)}",
        ]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


_NOBODYS_PAGE: Final = {"MillisBehindLatest": 0, "NextShardIterator": "nobody's", "Records": []}


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """Read one; None if the caller has hung up."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name
    }
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, target, headers, body)


def _encoded(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


async def _main() -> None:
    tls = None
    if len(sys.argv) > 2:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(sys.argv[2])
    account = Account()
    servers = [
        await asyncio.start_server(
            Server(account, is_kind=is_kind).serve,
            "127.0.0.1",
            port,
            limit=_MOST_HEAD,
            ssl=tls,
            backlog=512,
        )
        for port, is_kind in ((int(sys.argv[1]), False), (0, True))
    ]
    ports = [str(each.sockets[0].getsockname()[1]) for each in servers]
    sys.stdout.write(" ".join(ports) + "\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    os._exit(0)  # there is nothing to keep, and connections may still be open


if __name__ == "__main__":
    asyncio.run(_main())
