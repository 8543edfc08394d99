"""What an error means for whoever reads a stream: one table, for all doors.

Pure: an error goes in, what to do comes out. What a code of the API is called stands in ``kinesis.errors``; what
a retry waits for besides stands in ``kinesis.pacing``.

| error | reaction |
| --- | --- |
| throttled | retry as the pacing allows, counted as a throttle |
| 5xx, time-outs, resets, refused iterators | retry as the pacing allows |
| KMS refuses the stream's key | the shard waits; retry every 30 s, nothing is skipped |
| access denied | before anything was read: fail. Later: retry every 30 s |
| the shard was trimmed away | end the shard, counted |
| anything else: data loss, no such stream, a mistake of ours | fail |
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from kinesis_spout.errors import AccessDenied, KeyUnavailable, KinesisSpoutError, ShardNotFound, Throttled

SLOW_SECONDS: Final = 30.0
"""For what only a person can mend: the key of the stream, permissions. Asking more often helps nobody."""


class Action(Enum):
    """What to do."""

    RETRY = "retry"
    END_SHARD = "end shard"
    """Retention took it. What was not read of it is gone; its children go on."""
    FAIL = "fail"
    """Trying again does not help: tell the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """What to do about one error."""

    action: Action
    wait_seconds: float = 0.0
    """Before the next try, at least. The pacing of a shard may demand more."""
    is_throttle: bool = False
    """Counted as a throttle; normal, and not worth a warning."""


_RETRY: Final = Reaction(action=Action.RETRY)
_RETRY_SLOWLY: Final = Reaction(action=Action.RETRY, wait_seconds=SLOW_SECONDS)
_RETRY_THROTTLED: Final = Reaction(action=Action.RETRY, is_throttle=True)
_END_SHARD: Final = Reaction(action=Action.END_SHARD)
_FAIL: Final = Reaction(action=Action.FAIL)


def reaction_to(error: BaseException, *, at_start: bool = False) -> Reaction:
    """Look an error up.

    Args:
        error: of reading a shard or of listing the shards.
        at_start: nothing of the stream could be read yet. Missing permissions are a mistake of the set-up then;
            later they were taken away and may come back.
    """
    match error:
        case AccessDenied():
            return _FAIL if at_start else _RETRY_SLOWLY
        case KeyUnavailable():
            return _RETRY_SLOWLY
        case Throttled():
            return _RETRY_THROTTLED
        case ShardNotFound():
            return _END_SHARD
        case KinesisSpoutError(retriable=True):
            return _RETRY
        case _:
            return _FAIL
