"""Judges whether what runs here is alive, and whether it is ready: never one answer for both questions.

**Alive** asks whether the process can go on by itself. It looks at nothing outside, so that no outage of
ZooKeeper, Kinesis or Spark makes an orchestrator restart healthy processes. It is false while the driver's
loop has not turned for three times its longest wait, and when an error has ended a consumer. Time in which the
whole process stood still (it was stopped, or its machine) is not held against the loop.

**Ready** asks whether records move. It is false while a shard that has something to deliver stands still,
while nothing is handed out (a pause), while ZooKeeper does not answer, before the first assignment, while a
call keeps assignments and commits waiting, and while finished records are not stored. Each reason is named,
with its shard.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from kinesis_spout.consumer.ports import LONGEST_TURN_SECONDS
from kinesis_spout.monitoring.consumer_look import ConsumerLook, Life

_LIVE_SECONDS: Final = 3 * LONGEST_TURN_SECONDS
_LATE_SECONDS: Final = 3.0
_COMMITS_MISSED: Final = 5
_SHORTEST_COMMIT_SECONDS: Final = 1.0
"""Shorter intervals are not held against a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why something is not alive or not ready."""

    app: str
    stream: str
    text: str
    shard_id: str | None = None

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {"app": self.app, "stream": self.stream, "shard_id": self.shard_id, "reason": self.text}

    def __str__(self) -> str:
        shard = "" if self.shard_id is None else f" {self.shard_id}"
        return f"{self.app} on {self.stream}{shard}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The answers for probes."""

    not_alive: Sequence[Reason]
    not_ready: Sequence[Reason]

    @property
    def is_alive(self) -> bool:
        """Say whether to leave the process alone."""
        return not self.not_alive

    @property
    def reasons(self) -> Sequence[Reason]:
        """Why it is not ready."""
        return [*self.not_alive, *self.not_ready]

    @property
    def is_ready(self) -> bool:
        """Say whether records move as they should."""
        return self.is_alive and not self.not_ready


def not_alive(lives: Iterable[Life], awake_seconds: float = inf) -> list[Reason]:
    """Say why a consumer is not alive; ``awake_seconds`` is how long the process has run without a gap."""
    return [reason for life in lives for reason in _not_alive(life, awake_seconds)]


def health_of(lives: Iterable[Life], looks: Iterable[ConsumerLook], awake_seconds: float = inf) -> Health:
    """Judge every consumer that was looked at."""
    return Health(
        not_alive=not_alive(lives, awake_seconds),
        not_ready=[reason for look in looks for reason in _not_ready(look)],
    )


def _not_alive(life: Life, awake_seconds: float) -> Iterator[Reason]:
    unturned = min(life.unturned_seconds, awake_seconds)
    if life.fatal is not None:
        yield Reason(app=life.app, stream=life.stream, text=f"ended by {life.fatal}")
    elif unturned > _LIVE_SECONDS:
        text = f"its loop has not turned for {unturned:.1f} s"
        yield Reason(app=life.app, stream=life.stream, text=text)


def _not_ready(look: ConsumerLook) -> Iterator[Reason]:
    if look.fatal is not None or look.is_over:
        return
    if look.late_seconds > _LATE_SECONDS:
        yield _reason(look, f"could not be looked at for {look.late_seconds:.0f} s: its lock is kept")
    if not look.is_certain:
        yield _reason(look, "ZooKeeper does not answer; nothing is handed out until it does")
    elif not look.is_placed:
        yield _reason(look, "waits for its first assignment of shards")
    elif look.hung_seconds:
        yield _reason(
            look, f"shards are neither assigned nor stored: a call has lasted {look.hung_seconds:.0f} s"
        )
    if look.pause is not None:
        yield _reason(look, look.pause)
    if look.paused_by_operator is not None:
        yield _reason(look, look.paused_by_operator)
    limit = _COMMITS_MISSED * max(_SHORTEST_COMMIT_SECONDS, look.commit_interval_seconds)
    if look.unstored_seconds > limit:
        yield _reason(
            look, f"{look.uncommitted:,} finished records are not stored for {look.unstored_seconds:.0f} s"
        )
    for shard in look.stalled:
        yield _reason(look, shard.reason, shard.status.shard_id)


def _reason(look: ConsumerLook, text: str, shard_id: str | None = None) -> Reason:
    return Reason(app=look.app, stream=look.stream, text=text, shard_id=shard_id)
