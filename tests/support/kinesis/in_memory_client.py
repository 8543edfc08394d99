"""What boto3's Kinesis client looks like over a stream in memory: same arguments, same replies, same errors."""

import base64
import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError

from kinesis_spout.kinesis.calls import RAW_BODY
from kinesis_spout.model.errors import (
    AccessDenied,
    DataLoss,
    ExpiredIterator,
    InvalidIterator,
    KeyUnavailable,
    KinesisError,
    ShardNotFound,
    StreamNotFound,
    Throttled,
    Unavailable,
)
from kinesis_spout.model.record import Record
from kinesis_spout.testing import InMemoryStream
from shard_state import Position, PositionType, SequenceNumber, Shard

CODES: dict[type[KinesisError], str] = {
    AccessDenied: "AccessDeniedException",
    DataLoss: "InvalidArgumentException",
    ExpiredIterator: "ExpiredIteratorException",
    InvalidIterator: "InvalidArgumentException",
    KeyUnavailable: "KMSDisabledException",
    ShardNotFound: "ResourceNotFoundException",
    StreamNotFound: "ResourceNotFoundException",
    Throttled: "ProvisionedThroughputExceededException",
    Unavailable: "InternalFailureException",
}


def client_error(code: str, operation: str, *, status: int = 400, message: str = "as told") -> ClientError:
    return ClientError(
        {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}},  # type: ignore[typeddict-item]
        operation,
    )


class InMemoryKinesisClient:
    """The read side of the API. ``calls`` counts GetRecords; ``iterator_requests`` keeps GetShardIterator's.

    It is its own settings, too: ``connect`` gives it, so that it goes where ``KinesisClientSettings`` goes.
    """

    def __init__(self, stream: InMemoryStream) -> None:
        self._stream = stream
        self.meta = SimpleNamespace(region_name="us-east-1", endpoint_url="memory:")
        self.calls = 0
        self.iterator_requests: list[dict[str, Any]] = []

    def connect(self) -> "InMemoryKinesisClient":
        return self

    def describe_stream_summary(self, **_request: Any) -> dict[str, Any]:
        try:
            summary = self._stream.summary()
        except KinesisError as error:
            raise client_error(CODES[type(error)], "DescribeStreamSummary") from error
        created = datetime.fromtimestamp(summary.created, UTC)
        return {
            "StreamDescriptionSummary": {
                "StreamName": summary.name,
                "StreamARN": summary.arn,
                "StreamCreationTimestamp": created,
            }
        }

    def list_shards(self, **_request: Any) -> dict[str, Any]:
        try:
            shards = self._stream.list_shards()
        except KinesisError as error:
            raise client_error(CODES[type(error)], "ListShards") from error
        return {"Shards": [_wire_shard(shard) for shard in shards]}

    def get_shard_iterator(self, **request: Any) -> dict[str, Any]:
        self.iterator_requests.append(request)
        kind = PositionType(request["ShardIteratorType"])
        number = request.get("StartingSequenceNumber")
        position = Position(
            type=kind,
            sequence_number=None if number is None else SequenceNumber.parse(number),
            timestamp=request.get("Timestamp"),
        )
        try:
            return {"ShardIterator": self._stream.shard_iterator(request["ShardId"], position)}
        except KinesisError as error:
            raise client_error(CODES[type(error)], "GetShardIterator") from error

    def get_records(self, **request: Any) -> dict[str, Any]:
        self.calls += 1
        try:
            page, following = self._stream.get_records(request["ShardIterator"], request["Limit"])
        except KinesisError as error:
            raise client_error(CODES[type(error)], "GetRecords") from error
        reply: dict[str, Any] = {
            "Records": [_wire_record(record) for record in page.records],
            "NextShardIterator": following,
            "MillisBehindLatest": page.millis_behind_latest,
            "ChildShards": [_wire_child(child) for child in page.child_shards],
        }
        return {RAW_BODY: json.dumps(reply).encode()}


def _wire_record(record: Record) -> dict[str, Any]:
    wire = {
        "Data": base64.b64encode(record.data).decode(),
        "SequenceNumber": record.sequence_number,
        "ApproximateArrivalTimestamp": record.arrival_timestamp,
    }
    if record.partition_key is not None:
        wire["PartitionKey"] = record.partition_key
    return wire


def _wire_shard(shard: Shard) -> dict[str, Any]:
    first, last = shard.hash_range
    names = ("ParentShardId", "AdjacentParentShardId")
    return {
        "ShardId": shard.shard_id,
        **dict(zip(names, shard.parents, strict=False)),
        "HashKeyRange": {"StartingHashKey": str(first), "EndingHashKey": str(last)},
        "SequenceNumberRange": {
            "StartingSequenceNumber": "0",
            **({"EndingSequenceNumber": "1"} if shard.closed else {}),
        },
    }


def _wire_child(child: Shard) -> dict[str, Any]:
    first, last = child.hash_range
    return {
        "ShardId": child.shard_id,
        "ParentShards": list(child.parents),
        "HashKeyRange": {"StartingHashKey": str(first), "EndingHashKey": str(last)},
    }
