"""What boto3's Kinesis client looks like over all streams of an account in memory."""

import json
from types import SimpleNamespace
from typing import Any

from kinesis_spout.kinesis.calls import RAW_BODY
from kinesis_spout.testing import InMemoryStream
from tests.support.kinesis.in_memory_client import InMemoryKinesisClient, client_error

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/"


class InMemoryAccountClient:
    """The read side of the API, for streams by name or ARN. ``listed`` counts ListStreams."""

    def __init__(self) -> None:
        self.streams: dict[str, InMemoryKinesisClient] = {}
        self.meta = SimpleNamespace(region_name="us-east-1", endpoint_url="memory:")
        self.listed = 0
        self.unlisted: set[str] = set()
        """Streams that a listing does not have yet."""

    def create(self, name: str, *payloads: bytes, age_seconds: float = 0.0) -> InMemoryStream:
        """Make a stream; one of this name is no more."""
        stream = InMemoryStream(name)
        stream._created -= age_seconds
        for payload in payloads:
            stream.put(payload, partition_key="key")
        self.streams[name] = InMemoryKinesisClient(stream)
        return stream

    def delete(self, name: str) -> None:
        """Delete a stream."""
        self.streams.pop(name)._stream.delete()

    def list_streams(self, **request: Any) -> dict[str, Any]:
        self.listed += 1
        after = request.get("ExclusiveStartStreamName", "")
        names = sorted(name for name in self.streams if name > after and name not in self.unlisted)
        page = names[: request["Limit"]]
        return {"StreamNames": page, "HasMoreStreams": len(page) < len(names)}

    def describe_stream_summary(self, **request: Any) -> dict[str, Any]:
        return self._of(request, "DescribeStreamSummary").describe_stream_summary(**request)

    def list_shards(self, **request: Any) -> dict[str, Any]:
        return self._of(request, "ListShards").list_shards(**request)

    def get_shard_iterator(self, **request: Any) -> dict[str, Any]:
        reply = self._of(request, "GetShardIterator").get_shard_iterator(**request)
        return {"ShardIterator": f"{_name(request)}|{reply['ShardIterator']}"}

    def get_records(self, **request: Any) -> dict[str, Any]:
        name, _, iterator = request["ShardIterator"].partition("|")
        client = self._of({"StreamName": name}, "GetRecords")
        reply = json.loads(client.get_records(ShardIterator=iterator, Limit=request["Limit"])[RAW_BODY])
        if reply["NextShardIterator"] is not None:
            reply["NextShardIterator"] = f"{name}|{reply['NextShardIterator']}"
        return {RAW_BODY: json.dumps(reply).encode()}

    def _of(self, request: dict[str, Any], operation: str) -> InMemoryKinesisClient:
        found = self.streams.get(_name(request))
        if found is None:
            raise client_error("ResourceNotFoundException", operation)
        return found


def _name(request: dict[str, Any]) -> str:
    stream: str = request.get("StreamName") or request["StreamARN"]
    return stream.rpartition("/")[2]
