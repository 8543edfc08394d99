"""The one rule for records that retention took before they were read: an error, or a warning and a count.

Lost are the records behind a position from which a shard was to be read on, and what was not read of a shard that
is gone. A start at TRIM_HORIZON asks for what retention has left, and for what arrives later. So a shard that is
gone before its first read is a loss only if something can have been put there, and taken, since the start.
"""

import logging

from kinesis_spout.kinesis.read.continuity import nothing_promised_is_lost
from kinesis_spout.model.errors import DataLoss, KinesisSpoutError
from shard_state import Position

_log = logging.getLogger(__name__)


def lose(text: str, *, fail: bool, so_that: str, cause: KinesisSpoutError | None = None) -> None:
    """Raise DataLoss if ``fail`` (`fail_on_data_loss`) is set, else log a warning.

    ``so_that`` says how reading goes on without it.
    """
    if fail:
        raise DataLoss(f"{text}. With `fail_on_data_loss=False` {so_that}") from cause
    _log.warning("%s; %s, as `fail_on_data_loss=False` says", text, so_that)


def lose_shard(
    stream: str,
    shard_id: str,
    position: Position,
    *,
    now: float,
    fail: bool,
    cause: KinesisSpoutError | None = None,
) -> int:
    """Report a shard that is gone before it was read to its end. Returns the losses, 0 or 1.

    ``now`` is in seconds since the epoch.

    Raises:
        DataLoss: records are lost, and ``fail`` is set.
    """
    shard = f"shard {shard_id!r} of stream {stream!r}"
    if nothing_promised_is_lost(position, now):
        _log.info("%s is gone before its first read: there is no record left of it to begin at", shard)
        return 0
    lose(
        f"{shard} is gone: retention trimmed it before it was read to its end",
        fail=fail,
        so_that="its children are read",
        cause=cause,
    )
    return 1
