"""The state that the threads of one consumer share, and the lock that guards it.

``ConsumerState`` makes and owns the lock; the parts of a consumer get the state and have no lock themselves.
A thread that touches what is listed under "Guarded" holds the lock and does no I/O meanwhile.
``tests/unit/consumer/test_lock.py`` runs the doors with guarded objects that detect any other caller.
"""

import logging
import random
import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from kinesis_spout.consumer.consumer_log import ConsumerLog
from kinesis_spout.consumer.counters import Counters, Figures
from kinesis_spout.consumer.dead_lettering import DeadLettering
from kinesis_spout.consumer.limits.delivery_rate import DeliveryRate
from kinesis_spout.consumer.ports import OwnershipListener, Ports
from kinesis_spout.consumer.sharing import Sharing
from kinesis_spout.kinesis.retry_policy import Action, FailuresInARow, Reaction, Told, Work, reaction_to
from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.model.logs import FailureKinds
from kinesis_spout.settings import SpoutConfig
from shard_state import (
    Capacity,
    Guarantee,
    Order,
    RetryPolicy,
    SliceLimits,
    StateManager,
)

_SPARED_SECONDS: Final = 600.0

_log = logging.getLogger(__name__)


class ConsumerState:
    """Mutable. The message time-out is for records that are handed out one by one."""

    def __init__(
        self,
        config: SpoutConfig,
        ports: Ports,
        *,
        message_timeout_seconds: float | None,
        door: str,
    ) -> None:
        self.config = config
        self.stream = config.stream_name
        self.ports = ports
        self.lock = threading.RLock()

        # Guarded
        self.manager = _state_manager(config, ports, message_timeout_seconds)
        self.sharing = Sharing(config, ports, self.manager, self.lock)
        """The shards that are ours. Its ``start`` and ``report`` do I/O, and take the lock themselves."""
        self.counters = Counters()
        self.failures = FailureKinds()
        self.figures = Figures()
        self.read_errors = ReadErrors(ports.clock)
        self.letters = DeadLettering(
            config, ports, self.manager, self.lock, counters=self.counters, figures=self.figures
        )
        """Dead letters that wait. Its methods that write take the lock themselves."""
        self.listener: OwnershipListener | None = None
        """The reader, from the start of the consumer to its end."""

        # The starting thread's, then the housekeeper's, and in the end the closing one's
        self.log = ConsumerLog(
            stream=config.stream_name, app=config.app, member=ports.coordinator.member, door=door
        )

        # Free for all threads
        self.door = door
        """The method that the user called."""
        self.deliveries = ports.deliveries or DeliveryRate(
            config.max_deliveries_per_second, config.max_total_deliveries_per_second
        )
        """Grants deliveries."""
        self.sharers = 1
        """The number of streams that share `max_buffered_bytes`, this one included; may change at any time."""
        self.last_error: KinesisSpoutError | None = None
        """The last error that is being retried; None once the retry has worked."""
        self.fatal: BaseException | None = None

    @property
    def now(self) -> float:
        return self.ports.clock.monotonic()

    def counted(self) -> Counters:
        """A copy. Takes the lock."""
        with self.lock:
            return Counters.total([self.counters])

    def check(self) -> None:
        if self.fatal is not None:
            raise self.fatal

    def end_with(self, error: BaseException) -> None:
        self.fatal = self.fatal or error


class _Trouble:
    """Mutable."""

    def __init__(self, error: KinesisSpoutError, clock: Clock) -> None:
        self.error = error
        self.failures = FailuresInARow()
        self.told = Told(clock)


class ReadErrors:
    """The shards of one consumer that cannot be read now. Mutable; call it under the consumer's lock.

    An error is logged as a warning that names its shard, as ``Told`` says.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._troubles: dict[str, _Trouble] = {}
        self._has_read = False

    @property
    def current(self) -> list[KinesisSpoutError]:
        return [trouble.error for trouble in self._troubles.values()]

    @property
    def by_shard(self) -> dict[str, KinesisSpoutError]:
        return {shard_id: trouble.error for shard_id, trouble in self._troubles.items()}

    def failed(self, shard_id: str, error: BaseException) -> Reaction:
        """Decide what to do about an error of reading a shard; keep and log it if it is retried."""
        reaction = reaction_to(error, Work.CONSUME if self._has_read else Work.QUERY)
        if reaction.action is Action.RETRY and isinstance(error, KinesisSpoutError):
            trouble = self._troubles.setdefault(shard_id, _Trouble(error, self._clock))
            trouble.error = error
            if trouble.told.is_news(error):
                _log.warning("%s: %s; it is read again before long, nothing is skipped", shard_id, error)
            failures = trouble.failures.failed(reaction)
            return replace(reaction, wait_seconds=reaction.wait_after(failures))
        return reaction

    def worked(self, shard_id: str) -> None:
        self._has_read = True
        trouble = self._troubles.pop(shard_id, None)
        if trouble is not None and trouble.told.has_told:
            _log.info("%s: it can be read again", shard_id)

    def drop(self, shard_ids: Iterable[str]) -> None:
        for shard_id in shard_ids:
            self._troubles.pop(shard_id, None)


def retry_policy(config: SpoutConfig) -> RetryPolicy:
    return RetryPolicy(
        limit=config.retry_limit,
        backoff_seconds=config.retry_backoff_seconds,
        multiplier=config.retry_backoff_multiplier,
        cap_seconds=config.retry_backoff_cap_seconds,
        jitter=config.retry_jitter,
    )


def max_spared_seconds(config: SpoutConfig) -> float:
    if config.max_spared_seconds is not None:
        return config.max_spared_seconds
    return _SPARED_SECONDS if config.run_end is None else 0.0


def _state_manager(config: SpoutConfig, ports: Ports, message_timeout_seconds: float | None) -> StateManager:
    return StateManager(
        app_instance=ports.coordinator.member,
        random=random.random,
        retry=retry_policy(config),
        order=Order(config.order),
        guarantee=Guarantee(config.guarantee),
        capacity=Capacity(records=config.max_pending, holes=config.max_holes),
        limits=SliceLimits(records=config.max_records_per_slice),
        message_timeout_seconds=message_timeout_seconds,
        max_spared_seconds=max_spared_seconds(config),
        bounds=None if config.run_end is None else config.run_end.bounds(ports.clock.time()),
    )
