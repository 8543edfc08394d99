"""One call of PutRecords, and the list of the shards it goes to: what of putting is I/O.

What goes into a call, and what follows from its answers, is decided in ``waiting_records`` and ``aggregates``.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from kinesis_spout.kinesis.errors import ResourceNotFound, expected
from kinesis_spout.kinesis.lister import KinesisShardLister
from kinesis_spout.kinesis.naming import stream_arguments
from kinesis_spout.kinesis.patience import Patience
from kinesis_spout.kinesis.write.hash_key_ranges import HashKeyRanges
from kinesis_spout.kinesis.write.put_records import Puttable
from kinesis_spout.model.errors import KinesisError, StreamNotFound, Unavailable

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient
    from mypy_boto3_kinesis.type_defs import PutRecordsResultEntryTypeDef as Result

T = TypeVar("T")

LISTING_SECONDS: Final = 5.0
"""How long ListShards is tried for. The stream can be written without it."""

_log = logging.getLogger(__name__)


class PutCalls:
    """Calls that put records on one stream. Thread-safe, like the client.

    Args:
        client: from ``KinesisClientSettings.connect``.
        stream: a name or an ARN.
        patience: its clock and jitter; a listing is tried no longer than its deadline.
    """

    def __init__(self, client: "KinesisClient", stream: str, patience: Patience) -> None:
        self._client = client
        self._stream = stream
        self._patience = patience
        self.work: Final = f"PutRecords on {stream}"
        """What errors call it."""

    def put(self, batch: Sequence[Puttable]) -> "Sequence[Result]":
        """Make one call, once, and give the answer for each record.

        Raises:
            ClientError, BotoCoreError, UnicodeDecodeError: as boto3 does.
            Unavailable: the reply is none, or not for these records.
        """
        reply = self._client.put_records(
            Records=[each.request() for each in batch], **stream_arguments(self._stream)
        )
        results: Sequence[Result] = expected(reply, "Records", self.work)
        if len(results) != len(batch):
            raise Unavailable(
                f"{self.work} expected an answer for each of {len(batch)} records, got {len(results)}"
            )
        return results

    def shards(self) -> HashKeyRanges:
        """List the stream's shards; where they cannot be had, none are known, which is logged."""
        lister = KinesisShardLister(
            self._client,
            self._stream,
            deadline_seconds=min(LISTING_SECONDS, self._patience.deadline_seconds),
            clock=self._patience.clock,
            jitter=self._patience.jitter,
        )
        try:
            return HashKeyRanges(lister.list_shards())
        except KinesisError as error:  # no record is at stake
            _log.warning(
                "The shards of %s cannot be listed, so one that throttles holds up the others: %s",
                self._stream,
                error,
            )
            return HashKeyRanges.unknown()


def with_stream_found(call: Callable[[], T]) -> T:
    """Make a call whose stream, if it is not found, does not exist: nothing else is asked for.

    Raises:
        StreamNotFound: says what to check.
    """
    try:
        return call()
    except ResourceNotFound as error:
        raise no_such_stream(error) from error.__cause__


def no_such_stream(error: ResourceNotFound) -> StreamNotFound:
    """Give the error for a stream that was not found."""
    return StreamNotFound(
        f"{error}; check the stream's name, the region, the endpoint and the account of the credentials"
    )
