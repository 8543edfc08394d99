"""What living members say of themselves, where their member nodes name an address: ``GET /status``.

Only such addresses are asked. An answer is text of another process: it is bounded, and what it does not say, or
says in another form, is unknown.
"""

import http.client
import re
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec

from shard_state import GroupMember

_TIMEOUT_SECONDS: Final = 1.0
_MAX_BYTES: Final = 1024 * 1024
_CHUNK_BYTES: Final = 64 * 1024
_ASKERS: Final = 16
_ADDRESS: Final = re.compile(r"(?P<host>[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):(?P<port>\d{1,5})")


class LiveShard(msgspec.Struct, frozen=True, kw_only=True):
    shard_id: str
    phase: str | None = None
    lag_millis: float | None = None
    in_flight: int | None = None
    waiting: int | None = None
    holes: int | None = None
    oldest_unfinished_seconds: float | None = None


class LiveRetry(msgspec.Struct, frozen=True, kw_only=True):
    """A record that failed, and waits to be delivered again."""

    shard_id: str
    sequence_number: str | int = ""
    attempts: int | None = None
    kind: str | None = None
    due_in_seconds: float | None = None


class LiveComponent(msgspec.Struct, frozen=True, kw_only=True):
    """What a component of a topology has done."""

    executed: int | None = None
    emitted: int | None = None
    acked: int | None = None
    failed: int | None = None
    latency_ms: float | None = None


class LiveStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A member's answer; or only the ``problem`` that there was with it."""

    state: str | None = None
    delivered: int | None = None
    acked: int | None = None
    retried: int | None = None
    dead_lettered: int | None = None
    records_per_second: float | None = None
    acked_per_second: float | None = None
    lag_millis: float | None = None
    in_flight: int | None = None
    waiting: int | None = None
    holes: int | None = None
    uncommitted: int | None = None
    last_error: str | None = None
    shards: tuple[LiveShard, ...] = ()
    retrying: tuple[LiveRetry, ...] = ()
    components: Mapping[str, LiveComponent] = {}
    picture: str | None = None
    """Of a topology, as SVG."""
    problem: str | None = None


def ask_members(members: Iterable[GroupMember]) -> dict[str, LiveStatus]:
    """Ask all members that name an address, at once; by their names."""
    # The field is younger than some members.
    addresses = {member.name: getattr(member, "http", None) for member in members}
    asked = {name: address for name, address in addresses.items() if address}
    if not asked:
        return {}
    with ThreadPoolExecutor(min(len(asked), _ASKERS), "kinesis-spout-status") as askers:
        return dict(zip(asked, askers.map(ask, asked.values()), strict=True))


def ask(address: str) -> LiveStatus:
    """Ask one member; a failure is a ``problem``."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        return LiveStatus(problem="its member node names no address of the form host:port")
    connection = http.client.HTTPConnection(
        found["host"].strip("[]"), int(found["port"]), timeout=_TIMEOUT_SECONDS
    )
    try:
        connection.request("GET", "/status", headers={"Accept": "application/json"})
        response = connection.getresponse()
        if response.status != http.client.OK:
            return LiveStatus(problem=f"{address} answers {response.status}")
        return _status(_body(response))
    except (OSError, http.client.HTTPException, RecursionError, ValueError) as error:
        return LiveStatus(problem=f"{address} does not answer as expected: {error!r}"[:300])
    finally:
        connection.close()


def _body(response: http.client.HTTPResponse) -> bytes:
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    body = bytearray()
    while chunk := response.read1(_CHUNK_BYTES):
        body += chunk
        if len(body) > _MAX_BYTES:
            raise ValueError(f"expected at most {_MAX_BYTES:,} bytes, got more")
        if time.monotonic() > deadline:
            raise ValueError(f"expected all of it within {_TIMEOUT_SECONDS:g} s, got a part")
    return bytes(body)


def _status(body: bytes) -> LiveStatus:
    document = msgspec.json.decode(body)
    if not isinstance(document, dict):
        raise ValueError(f"expected an object, got {type(document).__name__}")  # noqa: TRY004 - one error for all
    document.pop("problem", None)
    known: dict[str, Any] = {
        name: _known(value, field.type)
        for name, value in document.items()
        if (field := _FIELDS.get(name)) is not None
    }
    return LiveStatus(**{name: value for name, value in known.items() if value is not None})


def _known(value: Any, kind: Any) -> Any:
    """One field, or None where it has another form."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return None


_FIELDS: Final = {field.name: field for field in msgspec.structs.fields(LiveStatus)}
