"""The service without its faults: the streams of an account, as AWS documents them. No I/O.

Followed: the AWS API reference, and what users saw of what it does not say. An iterator after a trimmed number is
given without an error, and reads from the oldest record. A number of another shard is refused. ListShards refuses
a token together with a stream's name. A closed shard's last page has no next iterator, and names the children.
Times are counted by ``now``, which a test moves.
"""

import base64
import hashlib
import json
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter
from typing import Any, Final

HASH_KEYS: Final = 1 << 128
ACCOUNT: Final = "123456789012"
ITERATOR_SECONDS: Final = 300.0
TOKEN_SECONDS: Final = 300.0
MOST_CONSUMERS: Final = 20
_FIRST_NUMBER: Final = 49_590_338 * 10**48 >> 20 << 20
"""Has 56 digits, as those of AWS; the last 20 bits are a shard's."""
_PAGE_BYTES: Final = 10 << 20
_MOST_RECORDS: Final = 10_000
_MOST_PUTS: Final = 500
_MOST_KEY: Final = 256


class AwsError(Exception):
    """An answer, not a mistake."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.status = status

    @property
    def reply(self) -> dict[str, str]:
        return {"__type": self.code, "message": str(self)}


@dataclass(kw_only=True, eq=False)
class Shard:
    """Mutable."""

    index: int
    first: int
    """Hash key."""
    last: int
    start: int
    """Sequence number, also below."""
    parents: tuple[str, ...] = ()
    end: int | None = None
    """None: it is open."""
    children: list["Shard"] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    """As GetRecords shows them, in order, but for their numbers under ``number``."""
    trimmed_to: int = 0
    """Records below are gone."""
    is_gone: bool = False
    """Whether retention has removed it."""
    reads: deque[float] = field(default_factory=deque)
    iterators: deque[float] = field(default_factory=deque)
    read_again_at: float = 0.0
    """When the bytes that were read allow the next read."""
    written: tuple[float, int, int] = (0.0, 0, 0)
    """The second, and the records and bytes that were put in it."""

    @property
    def id(self) -> str:
        return f"shardId-{self.index:012}"

    def from_number(self, number: int) -> int:
        """Return the index of the first record from a number on."""
        return bisect_left(self.records, number, key=itemgetter("number"))

    def number_before(self, number: int) -> int:
        """Return the last number of this shard below a number, or where it starts."""
        return max(self.start, ((number - 1) >> 20 << 20) + (self.index << 4) + 2)

    def listed(self) -> dict[str, Any]:
        numbers = {"StartingSequenceNumber": str(self.start)}
        if self.end is not None:
            numbers["EndingSequenceNumber"] = str(self.end)
        names = ("ParentShardId", "AdjacentParentShardId")
        return {
            "ShardId": self.id,
            **dict(zip(names, self.parents, strict=False)),
            "HashKeyRange": self._hash_keys(),
            "SequenceNumberRange": numbers,
        }

    def as_child(self) -> dict[str, Any]:
        return {"ShardId": self.id, "ParentShards": list(self.parents), "HashKeyRange": self._hash_keys()}

    def _hash_keys(self) -> dict[str, str]:
        return {"StartingHashKey": str(self.first), "EndingHashKey": str(self.last)}


@dataclass(kw_only=True, eq=False)
class Stream:
    """Mutable."""

    region: str
    name: str
    created: float
    ready_at: float
    """Until then it is CREATING, or UPDATING."""
    busy_seconds: float
    """How long each change takes."""
    max_record_kib: int
    mode: str
    shards: dict[str, Shard] = field(default_factory=dict)
    old_shards: list[dict[str, Any]] = field(default_factory=list)
    """As they were listed before the last reshard."""
    consumers: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By ARN."""
    count: int = 0
    """Of sequence numbers."""
    deleted_at: float | None = None
    was_created: bool = False

    @property
    def arn(self) -> str:
        return f"arn:aws:kinesis:{self.region}:{ACCOUNT}:stream/{self.name}"

    def number(self, shard_index: int) -> int:
        self.count += 1
        return _FIRST_NUMBER + (self.count << 20) + (shard_index << 4) + 2

    def tip(self) -> int:
        """Return a number above all that were given out."""
        return _FIRST_NUMBER + ((self.count + 1) << 20)

    def add(self, first: int, last: int, parents: Iterable[Shard] = ()) -> Shard:
        index, parents = len(self.shards), tuple(parents)
        shard = Shard(
            index=index,
            first=first,
            last=last,
            start=self.number(index),
            parents=tuple(parent.id for parent in parents),
        )
        self.shards[shard.id] = shard
        for parent in parents:
            parent.children.append(shard)
        return shard

    def open_shards(self) -> list[Shard]:
        return [shard for shard in self.shards.values() if shard.end is None]

    def listed(self) -> list[dict[str, Any]]:
        return [shard.listed() for shard in self.shards.values() if not shard.is_gone]

    def status(self, now: float) -> str:
        if self.deleted_at is not None:
            return "DELETING"
        if now >= self.ready_at:
            self.was_created = True
            return "ACTIVE"
        return "UPDATING" if self.was_created else "CREATING"


class Account:
    """The streams by region and name. Mutable, for one thread.

    The server asks before it answers whether a behaviour changes what is answered; here is only what is right.
    """

    def __init__(self) -> None:
        self.streams: dict[tuple[str, str], Stream] = {}
        self.ahead_seconds = 0.0
        """Of the service's clock before this machine's."""
        self.list_page = 1_000
        self._tokens: dict[str, tuple[float, str, list[dict[str, Any]]]] = {}
        self._made = 0

    def now(self) -> float:
        return time.time() + self.ahead_seconds

    # Streams

    def stream(self, region: str, request: dict[str, Any]) -> Stream:
        arn = request.get("StreamARN", "")
        if arn:
            region = arn.split(":")[3]
        name = arn.partition(":stream/")[2].partition("/")[0] or request.get("StreamName", "")
        if not name:
            raise AwsError("InvalidArgumentException", "StreamName or StreamARN must be provided.")
        found = self.streams.get((region, name))
        if found is None or (found.deleted_at is not None and self.now() >= found.deleted_at):
            self.streams.pop((region, name), None)
            raise AwsError("ResourceNotFoundException", f"Stream {name} under account {ACCOUNT} not found.")
        return found

    def create(
        self,
        region: str,
        name: str,
        shards: int,
        *,
        busy_seconds: float = 0.0,
        max_record_kib: int = 1024,
        mode: str = "PROVISIONED",
    ) -> Stream:
        try:
            self.stream(region, {"StreamName": name})
        except AwsError:
            pass
        else:
            raise AwsError("ResourceInUseException", f"Stream {name} under account {ACCOUNT} already exists.")
        now = self.now()
        stream = Stream(
            region=region,
            name=name,
            created=round(now, 3),
            ready_at=now + busy_seconds,
            busy_seconds=busy_seconds,
            max_record_kib=max_record_kib,
            mode=mode,
        )
        # As numbers tell the times of AWS, those of a stream made again are higher.
        self._made += 1
        stream.count = self._made << 40
        edges = [number * HASH_KEYS // shards for number in range(shards + 1)]
        for first, after in pairwise(edges):
            stream.add(first, after - 1)
        stream.old_shards = stream.listed()
        self.streams[region, name] = stream
        return stream

    def delete(self, stream: Stream) -> None:
        stream.deleted_at = self.now() + stream.busy_seconds

    def change(self, stream: Stream) -> None:
        """Begin a reshard. Raises AwsError if it is being changed."""
        status = stream.status(self.now())
        if status != "ACTIVE":
            raise AwsError("ResourceInUseException", f"Stream {stream.name} is {status}, not ACTIVE.")
        stream.old_shards = stream.listed()
        stream.ready_at = self.now() + stream.busy_seconds

    def split(self, stream: Stream, shard: Shard, middle: int) -> None:
        if shard.end is not None or not shard.first < middle <= shard.last:
            raise AwsError("InvalidArgumentException", f"NewStartingHashKey {middle} is not in {shard.id}")
        self.change(stream)
        shard.end = stream.number(shard.index)
        stream.add(shard.first, middle - 1, [shard])
        stream.add(middle, shard.last, [shard])

    def merge(self, stream: Stream, one: Shard, other: Shard) -> None:
        low, high = sorted((one, other), key=lambda shard: shard.first)
        if one.end is not None or other.end is not None or low.last + 1 != high.first:
            raise AwsError("InvalidArgumentException", f"{one.id} and {other.id} are not adjacent.")
        self.change(stream)
        one.end, other.end = stream.number(one.index), stream.number(other.index)
        stream.add(low.first, high.last, [one, other])

    def shard(self, stream: Stream, shard_id: str) -> Shard:
        found = stream.shards.get(shard_id)
        if found is None or found.is_gone:
            raise AwsError(
                "ResourceNotFoundException",
                f"Shard {shard_id} in stream {stream.name} under account {ACCOUNT} does not exist",
            )
        return found

    def trim(self, shard: Shard, before: int | None) -> int:
        """Have retention remove the records below a number, or all; returns how many."""
        keep = len(shard.records) if before is None else shard.from_number(before)
        if keep:
            shard.trimmed_to = shard.records[keep - 1]["number"] + 1
        del shard.records[:keep]
        return keep

    def listing(self, stream: str, shards: list[dict[str, Any]], most: int) -> dict[str, Any]:
        """Answer with a page of shards, and a token for the rest."""
        most = min(most, self.list_page)
        reply: dict[str, Any] = {"Shards": shards[:most]}
        if shards[most:]:
            token = base64.b64encode(f"{stream}/{len(self._tokens)}/{self.now()}".encode()).decode()
            self._tokens[token] = self.now(), stream, shards[most:]
            reply["NextToken"] = token
        return reply

    def listing_on(self, token: str) -> tuple[list[dict[str, Any]], str]:
        """Return the shards that a token is for, and their stream's name."""
        given_at, stream, shards = self._tokens.pop(token, (0.0, "", []))
        if self.now() - given_at > TOKEN_SECONDS:
            raise AwsError("ExpiredNextTokenException", "The specified NextToken is expired.")
        return shards, stream

    # Records

    def put(self, stream: Stream, shard: Shard, data: str, key: str, *, arrived: float | None = None) -> str:
        """Take a record, whose ``data`` is base64; returns its number."""
        number = stream.number(shard.index)
        shard.records.append(
            {
                "number": number,
                "ApproximateArrivalTimestamp": round(self.now() if arrived is None else arrived, 3),
                "Data": data,
                "EncryptionType": "NONE",
                "PartitionKey": key,
                "SequenceNumber": str(number),
            }
        )
        return str(number)

    def shard_for(self, stream: Stream, key: str, hash_key: str | None) -> Shard:
        if not 1 <= len(key) <= _MOST_KEY:
            raise AwsError("ValidationException", "partitionKey failed to satisfy constraint: 1 to 256")
        at = int(hash_key) if hash_key else int(hashlib.md5(key.encode()).hexdigest(), 16)
        found = next(
            (one for one in stream.shards.values() if one.end is None and one.first <= at <= one.last), None
        )
        if found is None:
            raise AwsError("InvalidArgumentException", f"ExplicitHashKey {at} is outside of 0 to 2^128 - 1")
        return found

    def check_puts(self, stream: Stream, records: Iterable[dict[str, Any]]) -> None:
        """Refuse a whole call that is over the limits of calls."""
        records = list(records)
        sizes = [data_bytes(record["Data"]) + len(record["PartitionKey"].encode()) for record in records]
        if not 1 <= len(records) <= _MOST_PUTS:
            raise AwsError("ValidationException", f"records failed to satisfy constraint: 1 to {_MOST_PUTS}")
        if max(sizes) > stream.max_record_kib << 10:
            raise AwsError("InvalidArgumentException", "Data and PartitionKey of a record are over its limit")
        if sum(sizes) > _PAGE_BYTES:
            raise AwsError("InvalidArgumentException", "Records size exceeds 10 MB limit")

    def start(self, stream: Stream, shard: Shard, kind: str, number: str | None, time_given: Any) -> int:
        """Return the number that reading begins at."""
        if kind == "TRIM_HORIZON":
            return 0
        if kind == "LATEST":
            return stream.tip()
        if kind == "AT_TIMESTAMP":
            if time_given is None or float(time_given) > self.now() + 1:
                raise AwsError(
                    "InvalidArgumentException",
                    f"The timestampInMillis parameter {time_given} is in the future.",
                )
            millis = round(float(time_given) * 1000)
            found = (
                each["number"]
                for each in shard.records
                if round(each["ApproximateArrivalTimestamp"] * 1000) >= millis
            )
            return next(found, stream.tip())
        at = int(number or 0)
        if (at >> 4) & 0xFFFF != shard.index or not shard.start <= at <= (shard.end or stream.tip()):
            raise AwsError(
                "InvalidArgumentException",
                f"StartingSequenceNumber {at} used in GetShardIterator on shard {shard.id} in stream "
                f"{stream.name} under account {ACCOUNT} is invalid.",
            )
        return at + (kind == "AFTER_SEQUENCE_NUMBER")

    def iterator(self, stream: Stream, shard: Shard, number: int) -> str:
        told = [stream.region, stream.name, stream.created, shard.id, number, self.now()]
        return base64.b64encode(json.dumps(told).encode()).decode()

    def iterated(self, iterator: str) -> tuple[Stream, Shard, int, float]:
        """Return what an iterator is for: stream, shard, number, and since when."""
        try:
            region, name, created, shard_id, number, born = json.loads(base64.b64decode(iterator))
        except ValueError as error:
            raise AwsError("InvalidArgumentException", "Invalid ShardIterator.") from error
        stream = self.stream(region, {"StreamName": name})
        if stream.created != created:
            raise AwsError("ResourceNotFoundException", f"Stream {name} under account {ACCOUNT} not found.")
        if self.now() - born > ITERATOR_SECONDS:
            raise AwsError(
                "ExpiredIteratorException", "Iterator expired. It was created more than 300 s ago."
            )
        return stream, self.shard(stream, shard_id), int(number), born

    def page(self, shard: Shard, number: int, most: int) -> list[dict[str, Any]]:
        """Return the records from a number on: as many as fit."""
        if not 1 <= most <= _MOST_RECORDS:
            raise AwsError(
                "ValidationException", f"limit {most} failed to satisfy constraint: 1 to {_MOST_RECORDS}"
            )
        first, size, records = shard.from_number(number), 0, shard.records
        for at in range(first, min(first + most, len(records))):
            size += record_bytes(records[at])
            if size > _PAGE_BYTES and at > first:
                return records[first:at]
        return records[first : first + most]

    def reply(self, stream: Stream, shard: Shard, number: int, page: list[dict[str, Any]]) -> dict[str, Any]:
        """Answer GetRecords with a page that begins at a number."""
        after = page[-1]["number"] + 1 if page else number
        at = shard.from_number(after)
        behind = (
            self.now() - shard.records[at]["ApproximateArrivalTimestamp"] if at < len(shard.records) else 0.0
        )
        reply: dict[str, Any] = {
            "MillisBehindLatest": max(0, int(behind * 1000)),
            "Records": [shown(each) for each in page],
        }
        if shard.end is not None and at >= len(shard.records):
            return reply | {"ChildShards": [child.as_child() for child in shard.children]}
        return reply | {"NextShardIterator": self.iterator(stream, shard, after)}


def shown(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "number"}


def data_bytes(data: str) -> int:
    return len(data) // 4 * 3 - data.count("=", -2)


def record_bytes(record: dict[str, Any]) -> int:
    return data_bytes(record["Data"]) + len(record["PartitionKey"].encode())
