"""boto3's Kinesis client as writers see it: streams in memory that refuse what a test tells them to."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from kinesis_spout.kinesis.write.hash_key_ranges import hash_key
from tests.support.kinesis.in_memory_client import client_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_kinesis import KinesisClient

THROTTLED = "ProvisionedThroughputExceededException"


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A record in a call."""

    stream: str
    shard: str
    key: str
    data: bytes
    taken: bool
    sequence_number: str = ""


class WritableKinesis:
    """Streams with evenly cut shards, named ``<stream>-<generation>-<number>``.

    ``refuses(stream, shard, request)`` gives an error code for a record, or None. ``before_call`` and
    ``after_call`` may raise; what ``after_call`` loses is on the stream.
    """

    def __init__(self, **shard_counts: int) -> None:
        self.meta = SimpleNamespace(region_name="us-east-1", endpoint_url="memory:")
        self.calls: list[list[Sent]] = []
        self.taken_count = 0
        self._sequence = 7
        self.listings = 0
        self.may_list = True
        self.refuses: Callable[[str, str, dict[str, Any]], str | None] = lambda *_: None
        self.before_call: Callable[[str, list[dict[str, Any]]], None] = lambda *_: None
        self.after_call: Callable[[], None] = lambda: None
        self._shards = dict(shard_counts)
        self._generations = dict.fromkeys(shard_counts, 0)
        self._old: dict[str, list[dict[str, Any]]] = {name: [] for name in shard_counts}
        self.lists_old_shards_only = False
        self.hides: set[str] = set()

    @property
    def client(self) -> "KinesisClient":
        return cast("KinesisClient", self)

    def taken(self, stream: str) -> list[bytes]:
        """The data on a stream, in the order it was taken."""
        return [sent.data for call in self.calls for sent in call if sent.taken and sent.stream == stream]

    def shard_of(self, stream: str, key: str, explicit: str | None = None) -> str:
        width = -(-(1 << 128) // self._shards[stream])
        return f"{stream}-{self._generations[stream]}-{hash_key(key, explicit) // width}"

    def reshard(self, stream: str, count: int) -> None:
        self._old[stream] += [
            {**shard, "SequenceNumberRange": {"StartingSequenceNumber": "1", "EndingSequenceNumber": "2"}}
            for shard in self._open_shards(stream)
        ]
        self._generations[stream] += 1
        self._shards[stream] = count

    def range_of(self, stream: str, shard: str) -> tuple[int, int]:
        """The first and the last hash key of a shard, open or closed."""
        (found,) = (
            each["HashKeyRange"]
            for each in self._old[stream] + self._open_shards(stream)
            if each["ShardId"] == shard
        )
        return int(found["StartingHashKey"]), int(found["EndingHashKey"])

    def put_records(self, **request: Any) -> dict[str, Any]:
        stream, records = request["StreamName"], request["Records"]
        if stream not in self._shards:
            raise client_error("ResourceNotFoundException", "PutRecords")
        self.before_call(stream, records)
        call: list[Sent] = []
        answers: list[dict[str, Any]] = []
        for record in records:
            key = record["PartitionKey"]
            shard = self.shard_of(stream, key, record.get("ExplicitHashKey"))
            code = self.refuses(stream, shard, record)
            self._sequence += 3
            sent = Sent(
                stream=stream,
                shard=shard,
                key=key,
                data=record["Data"],
                taken=code is None,
                sequence_number=str(self._sequence),
            )
            call.append(sent)
            answers.append(
                {"ShardId": shard, "SequenceNumber": sent.sequence_number}
                if code is None
                else {"ErrorCode": code, "ErrorMessage": "as told"}
            )
        self.calls.append(call)
        self.taken_count += sum(sent.taken for sent in call)
        self.after_call()
        return {"Records": answers, "FailedRecordCount": sum("ErrorCode" in each for each in answers)}

    def list_shards(self, **request: Any) -> dict[str, Any]:
        self.listings += 1
        if not self.may_list:
            raise client_error("AccessDeniedException", "ListShards")
        stream = request["StreamName"]
        listed = self._old[stream] + ([] if self.lists_old_shards_only else self._open_shards(stream))
        return {"Shards": [shard for shard in listed if shard["ShardId"] not in self.hides]}

    def _open_shards(self, stream: str) -> list[dict[str, Any]]:
        count = self._shards[stream]
        width = -(-(1 << 128) // count)
        return [
            {
                "ShardId": f"{stream}-{self._generations[stream]}-{number}",
                "HashKeyRange": {
                    "StartingHashKey": str(number * width),
                    "EndingHashKey": str(min((number + 1) * width, 1 << 128) - 1),
                },
                "SequenceNumberRange": {"StartingSequenceNumber": "1"},
            }
            for number in range(count)
        ]
