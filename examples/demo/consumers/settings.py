"""What a consumer of the demo is told, what it says of itself, and where its files are."""

import os
import select
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Self

import msgspec

from examples.demo.booking import BookDeparture
from kinesis_spout.settings import SpoutConfig
from shard_state import ShardStatus

APP: Final = "demo"
SESSION_TIMEOUT_SECONDS: Final = 3.0
"""A killed consumer's shards are free after it. Half of the default, to show it sooner."""
RETRY_LIMIT: Final = 3

STATUS_SECONDS: Final = 0.1
"""How often a consumer says how it is."""


class ConsumerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a consumer is told."""

    endpoint_url: str
    region: str
    stream: str
    zookeeper: str
    directory: str
    """The demo's; the ledger, the dead letters and the status are in it."""
    run: int
    """Which start of a consumer this is, from 1."""
    seed: int
    http: str | None = None
    """Where it says how it is, for the page."""

    @classmethod
    def of_command_line(cls) -> Self:
        """Take what ``ConsumerProcess`` gives."""
        return msgspec.json.decode(sys.argv[1], type=cls)

    def spout_config(self) -> SpoutConfig:
        """Give the spout's settings: both consumers have the same, and so they share the shards."""
        return SpoutConfig.of(
            stream=self.stream,
            app=APP,
            endpoint_url=self.endpoint_url,
            region=self.region,
            zookeeper=self.zookeeper,
            session_timeout_seconds=SESSION_TIMEOUT_SECONDS,
            hand_over_timeout_seconds=10.0,  # a micro-batch may take longer than the default on a slow machine
            initial_position="trim_horizon",
            shard_list_interval_seconds=2.0,
            max_batch_seconds=1.0,
            retry_limit=RETRY_LIMIT,
            retry_backoff_seconds=0.3,
            max_spared_seconds=0,  # in the blizzard nearly all flights are cancelled, which is no outage
            dead_letters=str(dead_letter_directory(Path(self.directory))),
            http=self.http,
        )

    def handler(self) -> BookDeparture:
        """Give what is called for each record."""
        return BookDeparture(ledger=ledger_directory(Path(self.directory)), run=self.run, seed=self.seed)


class ConsumerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a consumer says of itself, a few times a second. Times are monotonic, the same for all processes."""

    joined_at: float | None = None
    """When it was about to begin to consume; None while it starts."""
    spark_seconds: float | None = None
    """How long Spark took to start; None while it starts, and without Spark."""
    owned: tuple[str, ...] = ()
    """Its shards."""
    in_flight: int = 0
    """Records handed out, and not acked or failed yet."""
    waiting: int = 0
    """Records that wait for their retry."""
    error: str | None = None
    """The newest error that is being retried."""

    def now(self, shards: Iterable[ShardStatus], error: Exception | None) -> Self:
        """Give the same with what the spout says now."""
        owned = [shard for shard in shards if shard.epoch]
        return msgspec.structs.replace(
            self,
            owned=tuple(shard.shard_id for shard in owned),
            in_flight=sum(shard.in_flight for shard in owned),
            waiting=sum(shard.waiting for shard in owned),
            error=None if error is None else str(error),
        )

    def tell(self, settings: ConsumerSettings) -> None:
        """Write it down for the demo."""
        # Renamed into place: a reader never sees half of it, not even if this process is killed here.
        file = status_file(Path(settings.directory), settings.run)
        fresh = file.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(self))
        fresh.replace(file)


def ledger_directory(directory: Path) -> Path:
    """Say where the handler writes down what it does."""
    return directory / "ledger"


def dead_letter_directory(directory: Path) -> Path:
    """Say where the dead letters are."""
    return directory / "dead-letters"


def status_file(directory: Path, run: int) -> Path:
    """Say where a consumer's status is."""
    return directory / f"consumer-{run}-status.json"


def input_ended(timeout_seconds: float) -> bool:
    """Wait for the end of standard input, which tells a consumer to stop in order."""
    readable, _, _ = select.select([sys.stdin], [], [], timeout_seconds)
    return bool(readable) and not os.read(sys.stdin.fileno(), 1024)
