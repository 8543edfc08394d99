"""Puts records on a stream, all of them: PutRecords in batches, what it refuses in part put again.

AWS takes 500 records and 10 MiB a call, of which a record may be all. Batches stay below half of that, the
limit of older endpoints and of the emulators; only a record that is larger travels alone.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from kinesis_spout.dead_letters.perseverance import Patience, Perseverance

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient
    from mypy_boto3_kinesis.type_defs import PutRecordsOutputTypeDef

MAX_BATCH_RECORDS: Final = 500
MAX_BATCH_BYTES: Final = 5 * 1024 * 1024

T = TypeVar("T")


class Entry(NamedTuple):
    """A record to put."""

    partition_key: str
    data: bytes

    @property
    def size_bytes(self) -> int:
        """What it weighs against the limits: data before base64, and key."""
        return len(self.data) + len(self.partition_key.encode())


def batches(items: Iterable[T], size_bytes: Callable[[T], int]) -> Iterator[list[T]]:
    """Cut into runs that fit one call; an item beyond the limit is a run of its own."""
    batch: list[T] = []
    batch_bytes = 0
    for item in items:
        item_bytes = size_bytes(item)
        if batch and (len(batch) == MAX_BATCH_RECORDS or batch_bytes + item_bytes > MAX_BATCH_BYTES):
            yield batch
            batch, batch_bytes = [], 0
        batch.append(item)
        batch_bytes += item_bytes
    if batch:
        yield batch


def put_all(client: "KinesisClient", stream: str, entries: Iterable[Entry], patience: Patience) -> None:
    """Put every entry on the stream (a name or an ARN) before returning. At least once, in no given order.

    Raises:
        DeadLetterError: none, some or all of them are on the stream.
    """
    perseverance = Perseverance(patience, f"PutRecords on {stream}")
    for batch in batches(entries, lambda entry: entry.size_bytes):
        waiting = batch
        while waiting:
            reply = perseverance.call(partial(_put, client, stream, waiting))
            results = list(zip(waiting, reply["Records"], strict=True))
            refused = [result for _, result in results if result.get("ErrorCode")]
            if len(refused) < len(results):
                perseverance.progressed()
            waiting = [entry for entry, result in results if result.get("ErrorCode")]
            if refused:
                perseverance.wait(
                    f"{len(refused)} of {len(results)} records refused, "
                    f"{refused[0].get('ErrorCode')}: {refused[0].get('ErrorMessage')}"
                )


def stream_arguments(stream: str) -> dict[str, Any]:
    """Name a stream to an API call, by its ARN or by its name."""
    return {"StreamARN" if stream.startswith("arn:") else "StreamName": stream}


def _put(client: "KinesisClient", stream: str, entries: Sequence[Entry]) -> "PutRecordsOutputTypeDef":
    return client.put_records(
        Records=[{"Data": entry.data, "PartitionKey": entry.partition_key} for entry in entries],
        **stream_arguments(stream),
    )
