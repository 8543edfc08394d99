"""Kinesis calls that are made again until they succeed, are refused for good, or no progress is in sight."""

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from kinesis_spout.clock import Clock, SystemClock
from kinesis_spout.errors import KinesisSpoutError, Throttled, Unavailable
from kinesis_spout.kinesis.backoff import Jitter, backoff_seconds
from kinesis_spout.kinesis.errors import ResourceNotFound, said_by_boto3, translate

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long and how often to try again."""

    deadline_seconds: float = 60.0
    """How long one piece of work may go on failing; see ``Perseverance``."""
    first_backoff_seconds: float = 0.2
    backoff_cap_seconds: float = 5.0
    clock: Clock = field(default_factory=SystemClock)
    jitter: Jitter = random.random


class Perseverance:
    """The tries at one piece of work, until its first success. Mutable: counts failures.

    The deadline counts from when this is made: make it when the work begins, and a new one for the next work.
    """

    def __init__(self, patience: Patience, work: str) -> None:
        self._patience = patience
        self._work = work
        self._failures = 0
        self._deadline = patience.clock.monotonic() + patience.deadline_seconds

    def call(self, function: Callable[[], T]) -> T:
        """Call until there is an answer.

        Raises:
            KinesisError, InvalidConfig: the deadline has passed, or the answer is one that time does not
                change; of the kind that ``kinesis_spout.kinesis.errors`` gives it, caused by what boto3 raised.
        """
        while True:
            try:
                return function()
            except (ClientError, BotoCoreError, UnicodeDecodeError) as error:
                failure = translate(error, self._work)
                if not _may_pass(failure):
                    raise type(failure)(
                        f"expected {self._work} to succeed, got {said_by_boto3(error)}"
                    ) from error
                failure.__cause__ = error
                self.wait(failure)
            except Unavailable as failure:  # a reply that is none; see kinesis.errors.expected
                self.wait(failure)

    def wait(self, failure: KinesisSpoutError) -> None:
        """Wait before the next try, and say so. Raises like ``delay_seconds``."""
        delay = self.delay_seconds(failure)
        _log.warning("%s is tried again in %.1f s: %s", self._work, delay, failure)
        self._patience.clock.sleep(delay)

    def delay_seconds(self, failure: KinesisSpoutError) -> float:
        """Count a failure, and give how long to wait before the next try; see ``backoff_seconds``.

        Raises:
            KinesisError: of the failure's own kind and cause: the deadline would pass.
        """
        patience = self._patience
        self._failures += 1
        delay = backoff_seconds(
            self._failures,
            first=patience.first_backoff_seconds,
            cap=patience.backoff_cap_seconds,
            jitter=patience.jitter,
        )
        if patience.clock.monotonic() + delay > self._deadline:
            raise type(failure)(
                f"expected {self._work} to succeed within {patience.deadline_seconds:g} s, got {self._failures} "
                f"failures in a row; the last: {failure}"
            ) from (failure.__cause__ or failure)
        return delay


def error_code(error: ClientError) -> str:
    """Give the name of the API's error."""
    return str(error.response.get("Error", {}).get("Code", ""))


def _may_pass(failure: KinesisSpoutError) -> bool:
    # A stream that was not found is not there: unlike a shard, it has no other call to be verified with.
    return isinstance(failure, (Throttled, Unavailable)) and not isinstance(failure, ResourceNotFound)
