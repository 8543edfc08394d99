"""Asks what runs on this machine whether it is alive, or ready: what an exec probe does."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from typing import Any

import msgspec

from kinesis_spout.operations.errors import NotFound
from kinesis_spout.operations.watch.live_status import answer_of


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthView:
    """The answer to a probe."""

    is_good: bool
    asked: str
    """The address."""
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
    path = "/readyz" if ready else "/livez"
    url = f"http://{address}{path}"
    try:
        status, body = answer_of(address, path, timeout_seconds)
    except (OSError, HTTPException, ValueError) as error:
        raise NotFound(
            f"expected an answer from {url} within {timeout_seconds:g} s, got none: {error}. "
            "`http` is the setting by which a spout answers"
        ) from error
    if status not in {HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE}:
        raise NotFound(f"expected a spout at {url}, got the answer {status}")
    is_good = status == HTTPStatus.OK
    if not ready:
        lines = () if is_good else tuple(body.decode(errors="replace").splitlines())
        return HealthView(is_good=is_good, asked=url, reasons=lines)
    try:
        answer = msgspec.json.decode(body)
        reasons = tuple(map(_text, answer["reasons"]))
    except (msgspec.DecodeError, LookupError, TypeError) as error:
        raise NotFound(f"expected the answer of a spout at {url}, got another: {error!r}") from error
    return HealthView(is_good=is_good, asked=url, reasons=reasons, answer=answer)


def _text(reason: Mapping[str, str | None]) -> str:
    shard = f" {reason['shard_id']}" if reason["shard_id"] else ""
    return f"{reason['app']} on {reason['stream']}{shard}: {reason['reason']}"
