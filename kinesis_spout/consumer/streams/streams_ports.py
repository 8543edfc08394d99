"""The outside world of a spout that reads several streams: real by default, in memory for tests."""

from dataclasses import dataclass, field
from typing import Protocol

from kinesis_spout.consumer.ports import Ports
from kinesis_spout.model.clock import Clock
from kinesis_spout.settings import SpoutConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What is stored of an application."""

    began: float | None = None
    """When it first began on any stream, in seconds since the epoch, by the store's clock; None if never."""
    streams: frozenset[str] = field(default=frozenset())
    """The names of the streams on which it has begun."""


class StreamsPorts(Protocol):
    """Opens the ports of each stream; what they share is opened once. Thread-safe."""

    @property
    def clock(self) -> Clock:
        """What time it is."""
        ...

    def names(self, config: SpoutConfig) -> list[str]:
        """Name every stream of the account and the region that these settings lead to, on all pages.

        Raises:
            KinesisError: with ``retriable`` set, for what may pass.
        """
        ...

    def history(self) -> History:
        """Say what is stored of the application.

        Raises:
            StoreUnavailable: retriable.
        """
        ...

    def open(self, config: SpoutConfig) -> Ports:
        """Open the ports of one stream. To close them ends nothing that others use.

        Raises:
            KinesisSpoutError: see ``open_ports``.
        """
        ...

    def close(self) -> None:
        """Close what is shared, after all that was opened. May be called twice."""
        ...


def close_ports(ports: Ports) -> None:
    """Close ports that no consumer has taken over."""
    ports.group.close()
    ports.coordinator.close()
    ports.dead_letters.close()
    ports.close()
