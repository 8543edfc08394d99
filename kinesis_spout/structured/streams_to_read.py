"""The streams of a read: those that its options name, and those that their patterns find now.

All are of one region, so one listing serves all patterns. A pattern finds streams of the credentials'
account.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kinesis_spout.kinesis import stream_names
from kinesis_spout.kinesis.retry_policy import persistently
from kinesis_spout.model.clock import Clock
from kinesis_spout.settings.grammar.stream_names import is_pattern, matching, nothing_found

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient


def find_streams(parts: Sequence[str], client: "KinesisClient", clock: Clock) -> list[str]:
    """The named streams, existing or not, then those of patterns. Retries transient errors for a minute."""
    found = dict.fromkeys(part for part in parts if not is_pattern(part))
    patterns = [part for part in parts if is_pattern(part)]
    if patterns:
        names = stream_names(client, clock=clock)
        for pattern in patterns:
            found |= dict.fromkeys(matching(pattern, names))
    return list(found)


def streams_at_start(parts: Sequence[str], client: "KinesisClient", clock: Clock) -> list[str]:
    """Retries transient errors without limit. Raises StreamNotFound if no stream is named and none found."""
    found = persistently(lambda: find_streams(parts, client, clock), "the listing of the streams", clock)
    if not found:
        raise nothing_found("streamName or streamARN", parts)
    return found
