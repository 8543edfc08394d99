"""Makes the ``StateManager`` that decides as the settings say."""

import random

from kinesis_spout.consumer.ports import Ports
from kinesis_spout.settings import SpoutConfig
from shard_state import (
    OUTAGE_CAP_SECONDS,
    BreakerRule,
    Capacity,
    Guarantee,
    Order,
    RetryPolicy,
    SliceLimits,
    StateManager,
)


def state_manager(
    config: SpoutConfig, ports: Ports, *, message_timeout_seconds: float | None
) -> StateManager:
    """Make the manager of one consumer; ``message_timeout_seconds`` is for records that come one by one."""
    return StateManager(
        app_instance=ports.coordinator.member,
        random=random.random,
        retry=RetryPolicy(
            limit=config.retry_limit,
            backoff_seconds=config.retry_backoff_seconds,
            multiplier=config.retry_backoff_multiplier,
            cap_seconds=config.retry_backoff_cap_seconds,
            jitter=config.retry_jitter,
        ),
        order=Order(config.order),
        guarantee=Guarantee(config.guarantee),
        capacity=Capacity(records=config.max_pending, holes=config.max_holes),
        limits=SliceLimits(records=config.max_records_per_slice),
        message_timeout_seconds=message_timeout_seconds,
        breaker=BreakerRule(
            failure_ratio=config.breaker_failure_ratio,
            window=config.breaker_window,
            probes=RetryPolicy(cap_seconds=OUTAGE_CAP_SECONDS, jitter=config.retry_jitter),
        ),
        bounds=None if config.run_end is None else config.run_end.bounds(ports.clock.time()),
    )
