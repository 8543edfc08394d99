"""Puts the flights on the stream at an even pace, and reshards it on the way."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Self

from kinesis_spout import KinesisError
from kinesis_spout.kinesis import KinesisShardLister
from kinesis_spout.kinesis.calls import translated
from kinesis_spout.kinesis.retry_policy import CallRetryPolicy
from kinesis_spout.kinesis.write.put_records import Entry
from kinesis_spout.kinesis.write.record_putter import put_all
from shard_state import Shard

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

_LARGEST_BATCH: Final = 500
_BATCH_SECONDS: Final = 0.25
_ACTIVE_SECONDS: Final = 90.0
_POLL_SECONDS: Final = 0.05


class Reshard(Enum):
    """What is done to the stream's shards."""

    SPLIT = auto()
    MERGE = auto()


class Producer:
    """A thread that puts records. Mutable; may be looked at from any thread.

    Args:
        records_per_second: the pace.
        allowed: how many records are put before ``allow`` is called, so that something is left for later.
        reshards: by a number of records: what is done to the shards when that many are on the stream.
        tell: is told what happened, on the producer's thread.
    """

    def __init__(
        self,
        client: "KinesisClient",
        stream: str,
        entries: Sequence[Entry],
        *,
        records_per_second: float,
        allowed: int,
        reshards: Mapping[int, Reshard],
        tell: Callable[[str], None],
    ) -> None:
        self._client = client
        self._stream = stream
        self._entries = entries
        self._pace = records_per_second
        self._batch = max(1, min(_LARGEST_BATCH, int(records_per_second * _BATCH_SECONDS)))
        self._allowed = allowed
        self._reshards = dict(sorted(reshards.items()))
        self._tell = tell
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="demo-producer", daemon=True)
        self.produced = 0
        """How many records are on the stream: the first so many of those given."""
        self.open_shards = 0
        self.resharded: Counter[Reshard] = Counter()
        """What was done to the shards."""

    def allow(self, records: int) -> None:
        """Let it put so many records in all; not fewer than before."""
        self._allowed = max(self._allowed, records)

    @property
    def is_held(self) -> bool:
        """Whether all is put that it may put."""
        return self.produced >= self._allowed

    @property
    def finished(self) -> bool:
        """Whether all is put and done."""
        return self.produced == len(self._entries) and not self._reshards

    def check(self) -> None:
        """Raise what ended the thread, if something did."""
        if self._error is not None:
            raise self._error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._count_shards()
            while not self.finished and not self._stopping.is_set():
                self._step()
        except Exception as error:  # noqa: BLE001 - raised where the demo looks, by check
            self._error = error

    def _step(self) -> None:
        due = next(iter(self._reshards), None)
        if due is not None and self.produced >= due:
            self._reshard(self._reshards[due])
            del self._reshards[due]
            return
        batch = self._entries[self.produced : min(self.produced + self._batch, self._allowed)]
        if not batch:
            self._stopping.wait(_POLL_SECONDS)
            return
        put_all(self._client, self._stream, batch, CallRetryPolicy())
        self.produced += len(batch)
        self._stopping.wait(len(batch) / self._pace)

    def _reshard(self, reshard: Reshard) -> None:
        act = _split_a_shard if reshard is Reshard.SPLIT else _merge_two_shards
        with translated(f"resharding {self._stream}"):
            self._tell(act(self._client, self._stream))
        self.resharded[reshard] += 1
        self._count_shards()

    def _count_shards(self) -> None:
        self.open_shards = len(_open_shards(self._client, self._stream))


def make_stream(client: "KinesisClient", stream: str, shards: int) -> None:
    """Make a stream, and wait until it is there.

    Raises:
        KinesisError: the endpoint does not answer, or refuses.
    """
    with translated(f"CreateStream at {client.meta.endpoint_url}"):
        client.create_stream(StreamName=stream, ShardCount=shards)
        _await_active(client, stream)


def _split_a_shard(client: "KinesisClient", stream: str) -> str:
    """Split the first open shard in the middle of its hash keys. Says what was done."""
    shard = _open_shards(client, stream)[0]
    first, last = shard.hash_range
    client.split_shard(
        StreamName=stream, ShardToSplit=shard.shard_id, NewStartingHashKey=str((first + last + 1) // 2)
    )
    _await_active(client, stream)
    return f"split {shard.shard_id} in two"


def _merge_two_shards(client: "KinesisClient", stream: str) -> str:
    """Merge the two open shards with the highest hash keys. Says what was done."""
    lower, upper = _open_shards(client, stream)[-2:]
    client.merge_shards(StreamName=stream, ShardToMerge=lower.shard_id, AdjacentShardToMerge=upper.shard_id)
    _await_active(client, stream)
    return f"merged {lower.shard_id} and {upper.shard_id} into one"


def _open_shards(client: "KinesisClient", stream: str) -> list[Shard]:
    """List the open shards in the order of their hash keys: neighbours are adjacent."""
    shards = KinesisShardLister(client, stream).list_shards()
    return sorted((shard for shard in shards if not shard.closed), key=lambda shard: shard.hash_range)


def _await_active(client: "KinesisClient", stream: str) -> None:
    deadline = time.monotonic() + _ACTIVE_SECONDS
    while True:
        summary = client.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]
        if summary["StreamStatus"] == "ACTIVE":
            return
        if time.monotonic() > deadline:
            raise KinesisError(
                f"expected stream {stream!r} to be ACTIVE within {_ACTIVE_SECONDS:g} s, "
                f"it is {summary['StreamStatus']}: look at the endpoint"
            )
        time.sleep(_POLL_SECONDS)
