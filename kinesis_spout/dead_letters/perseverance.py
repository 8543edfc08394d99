"""Kinesis calls that are made again until they succeed, are refused for good, or no progress is in sight."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError  # noqa: A004

from kinesis_spout.clock import Clock, SystemClock
from kinesis_spout.errors import DeadLetterError

T = TypeVar("T")

_THROTTLES: Final = frozenset(
    {
        "KMSThrottlingException",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
    }
)
_SERVER_ERRORS: Final = range(500, 600)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long and how often to try again."""

    deadline_seconds: float = 60.0
    """How long nothing may succeed before it is given up."""
    first_backoff_seconds: float = 0.2
    backoff_cap_seconds: float = 5.0
    clock: Clock = field(default_factory=SystemClock)
    jitter: Callable[[], float] = random.random
    """Draws from 0 to 1."""


class Perseverance:
    """The tries at one piece of work. Mutable: counts failures since the last progress."""

    def __init__(self, patience: Patience, work: str) -> None:
        self._patience = patience
        self._work = work
        self.progressed()

    def progressed(self) -> None:
        """Start counting, and the deadline, anew."""
        self._failures = 0
        self._deadline = self._patience.clock.monotonic() + self._patience.deadline_seconds

    def call(self, function: Callable[[], T]) -> T:
        """Call until there is an answer.

        Raises:
            DeadLetterError: the deadline has passed, or the answer is one that time does not change.
        """
        while True:
            try:
                return function()
            except (ClientError, BotoCoreError) as error:
                if not _may_pass(error):
                    raise DeadLetterError(f"expected {self._work} to succeed, got {error}") from error
                self.wait(str(error), error)

    def wait(self, why: str, cause: Exception | None = None) -> None:
        """Wait before the next try: exponentially longer, at most the cap, half of it drawn at random.

        Raises:
            DeadLetterError: the deadline would pass.
        """
        patience = self._patience
        ceiling = min(
            patience.backoff_cap_seconds, patience.first_backoff_seconds * 2.0 ** min(self._failures, 30)
        )
        delay = ceiling * (1 + patience.jitter()) / 2
        self._failures += 1
        if patience.clock.monotonic() + delay > self._deadline:
            raise DeadLetterError(
                f"expected {self._work} to succeed within {patience.deadline_seconds:g} s, got {self._failures} "
                f"failures in a row; the last: {why}"
            ) from cause
        patience.clock.sleep(delay)


def error_code(error: ClientError) -> str:
    """Give the name of the API's error."""
    return str(error.response.get("Error", {}).get("Code", ""))


def _may_pass(error: ClientError | BotoCoreError) -> bool:
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return status in _SERVER_ERRORS or error_code(error) in _THROTTLES
    return isinstance(error, (ConnectionError, HTTPClientError))
