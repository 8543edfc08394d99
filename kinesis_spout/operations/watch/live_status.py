"""Asks living members over HTTP, where their member nodes name an address: ``GET /status``.

Only such addresses are asked. An answer is text of another process: it is bounded, and what it does not say, or
says in another form, is unknown.
"""

import http.client
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from kinesis_spout.settings import SpoutConfig
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
    stalled: bool | None = None
    reason: str | None = None
    """Why it is stalled."""
    read_error: str | None = None


class LiveRetry(msgspec.Struct, frozen=True, kw_only=True):
    """A record that failed, and waits to be delivered again."""

    shard_id: str
    sequence_number: str | int = ""
    attempts: int | None = None
    kind: str | None = None
    due_in_seconds: float | None = None


class LiveComponent(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a component of a topology."""

    executed: int | None = None
    emitted: int | None = None
    acked: int | None = None
    failed: int | None = None
    execute_latency: float | None = msgspec.field(default=None, name="executeLatencyMs")
    complete_latency: float | None = msgspec.field(default=None, name="completeLatencyMs")
    last_error: str | None = msgspec.field(default=None, name="lastError")

    @property
    def latency_millis(self) -> float | None:
        """The time of a bolt for a tuple, or of a spout until the tree of one is complete."""
        return self.execute_latency or self.complete_latency


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
    retrying: tuple[LiveRetry, ...] | None = None
    """None where it does not say."""
    components: Mapping[str, LiveComponent] = {}
    """By name; none if it runs no topology."""
    problem: str | None = None


def ask_members(members: Iterable[GroupMember], config: SpoutConfig) -> dict[str, LiveStatus]:
    """Ask all members of an application that name an address, at once; by their names."""
    asked = {member.name: member.http for member in members if member.http}
    if not asked:
        return {}
    with ThreadPoolExecutor(min(len(asked), _ASKERS), "kinesis-spout-status") as askers:
        answers = askers.map(lambda name: ask(asked[name], config.app, config.stream_name, name), asked)
        return dict(zip(asked, answers, strict=True))


def ask(address: str, app: str, stream: str, member: str) -> LiveStatus:
    """Ask one member; a failure is a ``problem``."""
    if _ADDRESS.fullmatch(address) is None:
        return LiveStatus(problem="its member node names no address of the form host:port")
    path = f"/status?{urlencode({'app': app, 'stream': stream})}"
    try:
        code, body = answer_of(address, path, _TIMEOUT_SECONDS)
        if code != http.client.OK:
            return LiveStatus(problem=f"{address} answers {code}")
        status = _status(_chosen(msgspec.json.decode(body), member))
        return msgspec.structs.replace(status, shards=tuple(_of_stream(status.shards, stream)))
    except (OSError, http.client.HTTPException, RecursionError, ValueError) as error:
        return LiveStatus(problem=f"{address} does not answer as expected: {error!r}"[:300])


def answer_of(address: str, path: str, timeout_seconds: float) -> tuple[int, bytes]:
    """Ask an address, host:port, by no proxy; give the status and the body, which is bounded.

    Raises OSError, HTTPException, and ValueError: it is no address, or the body is too large or too slow.
    """
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise ValueError(f"expected host:port, got {address!r}")
    host, port = found["host"].strip("[]"), int(found["port"])
    connection = http.client.HTTPConnection(host, port, timeout=timeout_seconds)
    try:
        connection.request("GET", path, headers={"Accept": "application/json"})
        response = connection.getresponse()
        return response.status, _body(response, timeout_seconds)
    finally:
        connection.close()


def _chosen(answer: Any, member: str) -> dict[str, Any]:
    """The document of this member, where its process has several."""
    documents = answer.get("several") if isinstance(answer, dict) else None
    if isinstance(documents, list):
        of_member = [each for each in documents if isinstance(each, dict) and each.get("member") == member]
        answer = of_member[0] if of_member else None
    if not isinstance(answer, dict):
        raise ValueError(f"expected an object, got {type(answer).__name__}")  # noqa: TRY004 - one error for all
    return answer


def _of_stream(shards: Iterable[LiveShard], stream: str) -> Iterator[LiveShard]:
    """A spout of several streams says of each shard whose it is: ``stream/shardId``."""
    for shard in shards:
        of, _, shard_id = shard.shard_id.rpartition("/")
        if of in ("", stream):
            yield msgspec.structs.replace(shard, shard_id=shard_id)


def _body(response: http.client.HTTPResponse, timeout_seconds: float) -> bytes:
    deadline = time.monotonic() + timeout_seconds
    body = bytearray()
    while chunk := response.read1(_CHUNK_BYTES):
        body += chunk
        if len(body) > _MAX_BYTES:
            raise ValueError(f"expected at most {_MAX_BYTES:,} bytes, got more")
        if time.monotonic() > deadline:
            raise ValueError(f"expected all of it within {timeout_seconds:g} s, got a part")
    return bytes(body)


def _status(document: Mapping[str, Any]) -> LiveStatus:
    known = {
        name: _known(value, field.type)
        for name, value in document.items()
        if name != "problem" and (field := _FIELDS.get(name)) is not None
    }
    return LiveStatus(**{name: value for name, value in known.items() if value is not None})


def _known(value: Any, kind: Any) -> Any:
    """One field, or None where it has another form."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return None


_FIELDS: Final = {field.name: field for field in msgspec.structs.fields(LiveStatus)}
