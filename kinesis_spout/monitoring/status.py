"""The state of a door as one JSON document, for ``/status`` and the page; and that of ``/readyz``."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from kinesis_spout.consumer.counters import Counters
from kinesis_spout.consumer.handle import Handle
from kinesis_spout.monitoring.consumer_look import ConsumerLook, ShardLook
from kinesis_spout.monitoring.health import Health, Reason
from kinesis_spout.monitoring.readings import is_topology

_COUNTERS: Final = (
    "delivered", "acked", "retried", "dead_lettered", "throttled", "timed_out", "bytes_read",
    "damaged_aggregates", "records_outside_shard", "commits",
)  # fmt: skip


def status_of(handle: Handle, looks: Sequence[ConsumerLook], reasons: Sequence[Reason]) -> dict[str, Any]:
    """Describe a spout, a query or a topology by its consumers: the sums, and every owned shard.

    ``state`` is running, paused or failed. Rates are of the last ten seconds.
    """
    counters = Counters.total(look.counters for look in looks)
    lags = [look.lag_millis for look in looks if look.lag_millis is not None]
    shards = [(look, shard) for look in looks for shard in look.owned]
    document: dict[str, Any] = {
        "state": _state(looks),
        "apps": sorted({look.app for look in looks}),
        "streams": sorted({look.stream for look in looks}),
        "member": next((look.member for look in looks), None),
        **{name: getattr(counters, name) for name in _COUNTERS},
        "records_per_second": round(sum(look.delivered_per_second for look in looks), 1),
        "acked_per_second": round(sum(look.acked_per_second for look in looks), 1),
        "lag_millis": max(lags, default=None),
        "in_flight": sum(shard.status.in_flight for _, shard in shards),
        "waiting": sum(shard.status.waiting for _, shard in shards),
        "holes": sum(shard.status.holes for _, shard in shards),
        "uncommitted": sum(look.uncommitted for look in looks),
        "last_error": next((look.retried_error for look in looks if look.retried_error), None),
        "paused": next(
            (text for look in looks for text in (look.pause, look.paused_by_operator) if text), None
        ),
        "members": _members(looks),
        "not_ready": [reason.document() for reason in reasons],
        "shards": [shard for look in looks for shard in _shards(look, several=len(looks) > 1)],
        "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }
    if is_topology(handle):
        document["topology"] = handle.name
        document["components"] = {name: counts.told() for name, counts in handle.components.items()}
    return document


def _state(looks: Sequence[ConsumerLook]) -> str:
    if any(look.fatal for look in looks):
        return "failed"
    return "paused" if any(look.pause or look.paused_by_operator for look in looks) else "running"


def _members(looks: Sequence[ConsumerLook]) -> dict[str, int]:
    shards: Counter[str] = Counter()
    for look in looks:
        shards.update(look.assigned)
    return dict(shards)


def _shards(look: ConsumerLook, *, several: bool) -> Iterator[dict[str, Any]]:
    reasons = _stalls(look)
    for shard in look.owned:
        prefix = f"{look.stream}/" if several else ""
        reason = reasons.get(shard.status.shard_id)
        yield _shard(shard, prefix) | {"stalled": reason is not None, "reason": reason}


def _stalls(look: ConsumerLook) -> dict[str, str]:
    return {shard.status.shard_id: shard.reason for shard in look.stalled}


def _shard(shard: ShardLook, prefix: str) -> dict[str, Any]:
    status = shard.status
    return {
        "shard_id": prefix + status.shard_id,
        "phase": status.phase.name.lower(),
        "epoch": status.epoch,
        "checkpoint": None if status.checkpoint is None else str(status.checkpoint),
        "in_flight": status.in_flight,
        "waiting": status.waiting,
        "exhausted": status.exhausted,
        "holes": status.holes,
        "congested": status.congested,
        "lag_millis": shard.lag_millis,
        "oldest_unfinished_seconds": round(shard.unfinished_seconds, 1),
        "read_error": shard.read_error,
    }


def readiness_of(health: Health, looks: Sequence[ConsumerLook]) -> dict[str, Any]:
    """The document of ``/readyz``: every reason, and every shard with its own."""
    return {
        "ready": health.is_ready,
        "alive": health.is_alive,
        "reasons": [reason.document() for reason in health.reasons],
        "consumers": [
            {
                "app": look.app,
                "stream": look.stream,
                "member": look.member,
                "standby": look.is_standby,
                "owned_shards": len(look.owned),
                "shards": _readiness_of_shards(look),
            }
            for look in looks
        ],
    }


def _readiness_of_shards(look: ConsumerLook) -> list[dict[str, Any]]:
    reasons = _stalls(look)
    ids = [shard.status.shard_id for shard in look.owned]
    return [{"shard_id": each, "ready": each not in reasons, "reason": reasons.get(each)} for each in ids]
