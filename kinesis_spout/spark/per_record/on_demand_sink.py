"""Where the dead letters of a query go: a sink that travels with it, and is opened only to write."""

import random
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from kinesis_spout.dead_letters.sink_url import check_once, check_url, open_sink
from kinesis_spout.kinesis import KinesisClientSettings
from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import DeadLetterError, InvalidConfig
from kinesis_spout.model.record import DeadLetter
from kinesis_spout.ports import DeadLetterSink
from shard_state import RedeliveryPolicy

_RETRIES: Final = RedeliveryPolicy(limit=4, backoff_seconds=0.5, cap_seconds=5.0)
"""Failing a micro-batch repeats all of it, so a letter is worth some tries."""
_KINESIS: Final = "kinesis://"


@dataclass(frozen=True, slots=True, kw_only=True)
class OnDemandSink:
    """A sink by its URL, as `open_sink` takes it. Picklable if its clock is. Raises InvalidConfig."""

    url: str
    client: KinesisClientSettings
    """For the stream of ``kinesis://``; ``s3://`` takes its credentials and region."""
    clock: Clock

    def __post_init__(self) -> None:
        if not self.url:
            raise InvalidConfig(f"dead_letters: expected a directory or a URL, got {self.url!r}")
        check_url(self.url)

    def check_writable(self) -> None:
        """Once in a process, before any work. Raises DeadLetterError."""
        with closing(self._open()) as sink:
            check_once(self.url, sink, aws=self.client)

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Make letters durable, at least once, before returning. Raises DeadLetterError after several tries."""
        attempts = 0
        with closing(self._open()) as sink:
            while True:
                try:
                    return sink.write(letters)
                except DeadLetterError:
                    attempts += 1
                    # Drawn at random only to spread the tries of several queries.
                    decision = _RETRIES.decide(attempts=attempts, random=random.random())  # noqa: S311
                    if decision is None:
                        raise
                    self.clock.sleep(decision.delay_seconds)

    def _open(self) -> DeadLetterSink:
        client = self.client.connect() if self.url.startswith(_KINESIS) else None
        return open_sink(self.url, client=client, aws=self.client)
