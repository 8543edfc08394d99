"""Errors of reading a shard: decided by the one table, and logged without flooding the log."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from kinesis_spout.kinesis.retry_policy import Action, Reaction, Work, reaction_to
from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import KinesisSpoutError

FIRST_REMINDER_SECONDS: Final = 60.0
LONGEST_REMINDER_SECONDS: Final = 3600.0

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Trouble:
    error: KinesisSpoutError
    failures: int = 0
    """Consecutive."""
    said: type[KinesisSpoutError] | None = None
    remind_at: float = 0.0
    reminder_seconds: float = FIRST_REMINDER_SECONDS


class ReadErrors:
    """The shards of one consumer that cannot be read now. Mutable; call it under the consumer's lock.

    An error is logged as a warning that names its shard when it first occurs, and again after 1, 2, 4...
    minutes, up to an hour, while it stays. Throttles are normal and not logged.
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
            failures = self._retried(shard_id, error, reaction)
            return replace(reaction, wait_seconds=reaction.wait_after(failures))
        return reaction

    def worked(self, shard_id: str) -> None:
        self._has_read = True
        trouble = self._troubles.pop(shard_id, None)
        if trouble is not None and trouble.said is not None:
            _log.info("%s: it can be read again", shard_id)

    def drop(self, shard_ids: Iterable[str]) -> None:
        for shard_id in shard_ids:
            self._troubles.pop(shard_id, None)

    def _retried(self, shard_id: str, error: KinesisSpoutError, reaction: Reaction) -> int:
        trouble = self._troubles.setdefault(shard_id, _Trouble(error))
        trouble.error = error
        trouble.failures += 1
        if not reaction.is_throttle:
            self._say(shard_id, trouble)
        return trouble.failures

    def _say(self, shard_id: str, trouble: _Trouble) -> None:
        error = trouble.error
        now = self._clock.monotonic()
        if trouble.said is not type(error):
            trouble.said, trouble.reminder_seconds = type(error), FIRST_REMINDER_SECONDS
        elif now < trouble.remind_at:
            return
        else:
            trouble.reminder_seconds = min(LONGEST_REMINDER_SECONDS, 2 * trouble.reminder_seconds)
        trouble.remind_at = now + trouble.reminder_seconds
        _log.warning("%s: %s; it is read again before long, nothing is skipped", shard_id, error)
