"""The shards of a stream, and the streams of an account in a region.

ListShards has the highest limits (100 to 1,000 calls/s per stream). DescribeStreamSummary has 20/s per
account, so it is called once, for the creation time. ListStreams has 5/s per account.
"""

import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from kinesis_spout.kinesis.calls import (
    ExpiredNextToken,
    ResourceNotFound,
    expected,
    stream_arguments,
    translated,
)
from kinesis_spout.kinesis.read.user_records import HashKeys
from kinesis_spout.kinesis.retry_policy import CallRetryPolicy, Jitter, Tries
from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.errors import StreamNotFound, Unavailable
from kinesis_spout.ports import StreamSummary
from shard_state import Shard

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient
    from mypy_boto3_kinesis.type_defs import ShardTypeDef

T = TypeVar("T")

_NAMES_A_PAGE: Final = 1_000
"""AWS: 100 by default, 10,000 at most."""


class KinesisShardLister:
    """A ``ShardLister`` over the Kinesis API. Thread-safe: it keeps only the newest hash keys.

    ``stream`` is a name or an ARN. Each call, such as a page of a listing, is tried for ``deadline_seconds``.
    """

    def __init__(
        self,
        client: "KinesisClient",
        stream: str,
        *,
        deadline_seconds: float = 60.0,
        clock: Clock | None = None,
        jitter: Jitter = random.random,
    ) -> None:
        self._client = client
        self._stream = stream
        self._deadline_seconds = deadline_seconds
        self._clock = clock or SystemClock()
        self._jitter = jitter
        self._hash_keys: Mapping[str, HashKeys | None] = {}

    def summary(self) -> StreamSummary:
        call = f"DescribeStreamSummary of stream {self._stream!r}"
        return self._tried(call, partial(self._summary, call))

    def _summary(self, call: str) -> StreamSummary:
        with translated(call):
            reply = self._client.describe_stream_summary(**stream_arguments(self._stream))
            description = expected(reply, "StreamDescriptionSummary", call, dict)
            name, arn = description["StreamName"], description["StreamARN"]
            if self._stream not in {name, arn} and not self._stream.endswith(f"/{name}"):
                raise Unavailable(f"{call} expected that stream, got {name!r}; the call is repeated")
            return StreamSummary(
                name=name,
                arn=arn,
                created=description["StreamCreationTimestamp"].timestamp(),
                retention_hours=description.get("RetentionPeriodHours"),
                ignores_keys=description.get("RecordDistributionStrategy") == "AUTO",
            )

    def list_shards(self) -> list[Shard]:
        """List every shard that retention has left; see the port.

        A page that is throttled or lost is requested again; the pages before it are kept. So a long listing
        ends as long as each page comes by the deadline. Only an expired token (after 300 s) restarts it.
        """
        call = f"ListShards of stream {self._stream!r}"
        restarts: Tries | None = None
        while True:
            try:
                shards = self._list_once(call)
            except ExpiredNextToken as expired:
                restarts = restarts or self._tries(call)
                self._clock.sleep(restarts.failed(expired))
            else:
                self._hash_keys = {shard.shard_id: HashKeys.to_check(shard) for shard in shards}
                return shards

    def hash_keys(self, shard_id: str) -> HashKeys | None:
        """Return ``HashKeys.to_check`` of a shard as last listed; None for an unlisted one."""
        return self._hash_keys.get(shard_id)

    def _list_once(self, call: str) -> list[Shard]:
        shards: list[Shard] = []
        arguments: dict[str, Any] = stream_arguments(self._stream)
        while True:
            page = self._tried(call, partial(self._page, arguments))
            if isinstance(page, ExpiredNextToken):
                raise page
            shards.extend(page.shards)
            token = page.next_token
            if not token:
                return shards
            arguments = {"NextToken": token}  # the API refuses the stream's name together with a token

    def _page(self, arguments: dict[str, Any]) -> "_Page | ExpiredNextToken":
        """Request a page. An expired token is an answer: repeating the call would not help."""
        try:
            with translated("ListShards"):
                reply = self._client.list_shards(**arguments)
                shards = expected(reply, "Shards", "ListShards", list)
                token = expected({"NextToken": "", **reply}, "NextToken", "ListShards", str)
                return _Page([_shard_of(listed) for listed in shards], token)
        except ExpiredNextToken as expired:
            return expired

    def _tried(self, call: str, ask: Callable[[], T]) -> T:
        try:
            return self._tries(call).call(ask)
        except ResourceNotFound as error:
            raise StreamNotFound(self._not_found()) from error

    def _tries(self, call: str) -> Tries:
        retry_policy = CallRetryPolicy(
            deadline_seconds=self._deadline_seconds, clock=self._clock, jitter=self._jitter
        )
        return Tries(retry_policy, call)

    def _not_found(self) -> str:
        meta = self._client.meta
        return (
            f"expected a stream {self._stream!r} in region {meta.region_name!r} at {meta.endpoint_url}, "
            "found none; check the name, the region, the endpoint and the account of the credentials"
        )


class _Page(NamedTuple):
    shards: list[Shard]
    next_token: str


def _shard_of(listed: "ShardTypeDef") -> Shard:
    parents = (listed.get("ParentShardId"), listed.get("AdjacentParentShardId"))
    if not all(isinstance(name, str) for name in (listed["ShardId"], *filter(None, parents))):
        raise TypeError(f"expected the names of a shard and its parents, got {listed}")
    hash_range = listed["HashKeyRange"]
    return Shard(
        shard_id=listed["ShardId"],
        parents=tuple(parent for parent in parents if parent),
        hash_range=(int(hash_range["StartingHashKey"]), int(hash_range["EndingHashKey"])),
        closed=bool(listed["SequenceNumberRange"].get("EndingSequenceNumber")),
    )


def stream_names(
    client: "KinesisClient",
    *,
    deadline_seconds: float = 60.0,
    clock: Clock | None = None,
    jitter: Jitter = random.random,
) -> list[str]:
    """Name all streams that the client can list. Raises AccessDenied without kinesis:ListStreams."""
    policy = CallRetryPolicy(deadline_seconds=deadline_seconds, clock=clock or SystemClock(), jitter=jitter)
    return Tries(policy, "ListStreams").call(partial(_stream_names, client))


def _stream_names(client: "KinesisClient") -> list[str]:
    names: list[str] = []
    arguments: dict[str, Any] = {"Limit": _NAMES_A_PAGE}
    while True:
        with translated("ListStreams"):
            reply = client.list_streams(**arguments)
            page: list[str] = expected(reply, "StreamNames", "ListStreams", list)
            names.extend(page)
        if not reply.get("HasMoreStreams") or not page:
            return names
        # The name and not the token, which some emulators lack: nothing is missed or repeated.
        arguments["ExclusiveStartStreamName"] = page[-1]
