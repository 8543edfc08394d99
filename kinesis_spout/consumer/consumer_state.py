"""What the threads of one consumer share, and the lock that guards it.

``ConsumerState`` makes the lock and owns it; what guards nothing else has no lock of its own. Whoever touches what
is named under "Guarded" holds it, and does no I/O meanwhile. ``tests/unit/consumer/test_lock.py`` runs the doors
with guarded things that refuse any other caller.
"""

import random
import threading
from typing import TYPE_CHECKING

from kinesis_spout.consumer.counters import Counters
from kinesis_spout.consumer.dead_lettering import WaitingLetters
from kinesis_spout.consumer.delivery_rate import DeliveryRate
from kinesis_spout.consumer.owning.sharing import Sharing
from kinesis_spout.consumer.ports import OwnershipListener, Ports
from kinesis_spout.consumer.read_errors import ReadErrors
from kinesis_spout.model.logs.failure_kinds import FailureKinds
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

if TYPE_CHECKING:
    from kinesis_spout.model.errors import KinesisSpoutError


class ConsumerState:
    """The shared state of one consumer. Mutable. The message time-out is for records that come one by one."""

    def __init__(self, config: SpoutConfig, ports: Ports, *, message_timeout_seconds: float | None) -> None:
        self.config = config
        self.ports = ports
        self.lock = threading.RLock()

        # Guarded
        self.manager = _state_manager(config, ports, message_timeout_seconds)
        self.sharing = Sharing(config, ports, self.manager, self.lock)
        """Which shards are ours. Its ``start`` and ``report`` do I/O, and take the lock themselves."""
        self.counters = Counters()
        self.failures = FailureKinds()
        self.read_errors = ReadErrors(ports.clock)
        """The shards that cannot be read now."""
        self.letters = WaitingLetters()
        self.listener: OwnershipListener | None = None
        """Whoever reads, from the start of the consumer to its end."""

        # Free for all threads
        self.deliveries = ports.deliveries or DeliveryRate(
            config.max_deliveries_per_second, config.max_total_deliveries_per_second
        )
        """What whoever delivers asks."""
        self.sharers = 1
        """How many streams share `max_buffered_bytes`, this one included; may change at any time."""
        self.last_error: KinesisSpoutError | None = None
        """The last error that is being retried; None once what failed has worked again."""
        self.fatal: BaseException | None = None
        """The error that ended the consumer, if one did."""

    @property
    def now(self) -> float:
        """The time that the manager is told."""
        return self.ports.clock.monotonic()

    def counted(self) -> Counters:
        """Copy the counts of this moment. Takes the lock."""
        with self.lock:
            return Counters.total([self.counters])

    def check(self) -> None:
        """Raise the error that ended the consumer, if one did."""
        if self.fatal is not None:
            raise self.fatal

    def end_with(self, error: BaseException) -> None:
        """End the consumer with an error that cannot be retried."""
        self.fatal = self.fatal or error


def _state_manager(config: SpoutConfig, ports: Ports, message_timeout_seconds: float | None) -> StateManager:
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
