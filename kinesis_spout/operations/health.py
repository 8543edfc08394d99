"""Asks what runs on this machine whether it is alive, or ready: what an exec probe does."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import msgspec

from kinesis_spout.operations.errors import NotFound, WrongArguments

_MAX_BYTES: Final = 1024 * 1024
"""Of an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthView:
    """What was found."""

    is_good: bool
    asked: str
    """The address, or the file."""
    reasons: tuple[str, ...] = ()
    answer: Mapping[str, Any] | None = None
    """The document of ``/readyz``."""

    def document(self) -> dict[str, Any]:
        return {
            "good": self.is_good,
            "asked": self.asked,
            "reasons": list(self.reasons),
            "answer": self.answer,
        }


def ask(address: str, *, ready: bool, timeout_seconds: float) -> HealthView:
    """Ask a spout's HTTP address whether it is alive or, with ``ready``, whether records move.

    Raises:
        NotFound: nothing answers there in time, or something else does.
    """
    import http.client  # noqa: PLC0415 - --help does not wait for it
    import urllib.error  # noqa: PLC0415
    import urllib.request  # noqa: PLC0415

    url = f"http://{address}{'/readyz' if ready else '/livez'}"
    try:
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never by HTTP_PROXY
        with direct.open(url, timeout=timeout_seconds) as answer:
            status, body = answer.status, answer.read(_MAX_BYTES)
    except urllib.error.HTTPError as error:
        with error:
            status, body = error.code, error.read(_MAX_BYTES)
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise NotFound(
            f"expected an answer from {url} within {timeout_seconds:g} s, got none: {reason}. "
            "`http` is the setting by which a spout answers"
        ) from error
    if status not in {HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE}:
        raise NotFound(f"expected a spout at {url}, got the answer {status}")
    if not ready:
        lines = () if status == HTTPStatus.OK else tuple(body.decode(errors="replace").splitlines())
        return HealthView(is_good=status == HTTPStatus.OK, asked=url, reasons=lines)
    try:
        document = msgspec.json.decode(body, type=_Readiness)
    except msgspec.DecodeError as error:
        raise NotFound(f"expected the answer of a spout at {url}, got another: {error}") from error
    return HealthView(
        is_good=status == HTTPStatus.OK,
        asked=url,
        reasons=tuple(str(reason) for reason in document.reasons),
        answer=msgspec.json.decode(body),
    )


def look_at(file: Path, *, max_age_seconds: float) -> HealthView:
    """Look whether a spout has touched its ``health_file`` lately.

    Raises:
        WrongArguments: the age is no positive number.
    """
    if not max_age_seconds > 0:
        raise WrongArguments(f"max-age: expected more than 0 seconds, got {max_age_seconds:g}")
    try:
        age = time.time() - file.stat().st_mtime
    except OSError as error:
        return HealthView(is_good=False, asked=str(file), reasons=(f"it cannot be read: {error.strerror}",))
    if age <= max_age_seconds:
        return HealthView(is_good=True, asked=str(file))
    reason = f"expected it touched within {max_age_seconds:g} s, it was {age:.0f} s ago"
    return HealthView(is_good=False, asked=str(file), reasons=(reason,))


class _Reason(msgspec.Struct, frozen=True):
    app: str
    stream: str
    reason: str
    shard_id: str | None = None

    def __str__(self) -> str:
        shard = "" if self.shard_id is None else f" {self.shard_id}"
        return f"{self.app} on {self.stream}{shard}: {self.reason}"


class _Readiness(msgspec.Struct, frozen=True):
    ready: bool
    reasons: list[_Reason]
