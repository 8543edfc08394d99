"""Which streams a read has: those that its options name, and those that their patterns find now.

All are of one region, so one listing serves all patterns. A pattern finds streams of the credentials'
account.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kinesis_spout.kinesis import stream_names
from kinesis_spout.kinesis.retry_policy import persistently
from kinesis_spout.model.clock import Clock
from kinesis_spout.settings.grammar.streams import is_pattern, matching, nothing_found

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient


def find_streams(parts: Sequence[str], client: "KinesisClient", clock: Clock) -> list[str]:
    """The streams that are named, whether they exist or not, then those that patterns find.

    ``client`` lists the streams only if there is a pattern; transient errors are retried for a minute.

    Raises:
        KinesisError: the streams cannot be listed.
    """
    found = dict.fromkeys(part for part in parts if not is_pattern(part))
    patterns = [part for part in parts if is_pattern(part)]
    if patterns:
        names = stream_names(client, clock=clock)
        for pattern in patterns:
            found |= dict.fromkeys(matching(pattern, names))
    return list(found)


def streams_at_start(parts: Sequence[str], client: "KinesisClient", clock: Clock) -> list[str]:
    """The streams that a read begins with. Retries transient errors without limit.

    Raises:
        StreamNotFound: no stream is named, and no pattern finds one.
        AccessDenied: the credentials lack kinesis:ListStreams.
    """
    found = persistently(lambda: find_streams(parts, client, clock), "the listing of the streams", clock)
    if not found:
        raise nothing_found("streamName or streamARN", parts)
    return found
