"""What answers: ZooKeeper, Kinesis and its stream, and what our credentials may do there."""

import re
import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

from kinesis_spout.model.errors import AccessDenied, KinesisSpoutError, MissingExtra, Throttled
from kinesis_spout.operations.doctor.finding import Finding
from kinesis_spout.operations.group import group_view
from kinesis_spout.operations.shards import ShardState, describe
from kinesis_spout.operations.world import World
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.grammar.shard_positions import MARGIN_SECONDS

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

_ZOOKEEPER: Final = "ZooKeeper"
_ENDPOINT: Final = "endpoint"
_CLOCK: Final = "clock"
_VERSION: Final = re.compile(r"^Zookeeper version: ([^\s,-]+)", re.MULTILINE)
_MODE: Final = re.compile(r"^Mode: (\w+)", re.MULTILINE)
_WOULD_SUCCEED: Final = "DryRunOperationException"
_REFUSED_SECONDS: Final = 300.0
"""By so much AWS lets a clock be wrong before it refuses every request."""


def zookeeper(world: World, config: SpoutConfig) -> Finding:
    where = config.zookeeper_hosts
    try:
        said = world.zookeeper_answer(config)
    except MissingExtra as error:
        return Finding.missing(_ZOOKEEPER, "embedded, without jars to start it from", str(error))
    except KinesisSpoutError as error:
        return Finding.missing(
            _ZOOKEEPER,
            str(error),
            "see that it runs and can be reached from here; --zookeeper HOST:PORT names another",
        )
    if said is None:
        return Finding.ok(_ZOOKEEPER, "embedded; no process runs it now, the next consumer starts it")
    version, mode = _VERSION.search(said), _MODE.search(said)
    text = f"reached at {where}" if where is not None else "embedded, and running"
    if version is None or mode is None:
        return Finding.ok(_ZOOKEEPER, f"{text}; version and mode not known: it does not answer `srvr`")
    return Finding.ok(_ZOOKEEPER, f"{text}: {version[1]}, {mode[1]}")


def kinesis(world: World, config: SpoutConfig, *, stream: bool) -> Iterator[Finding]:
    """Ask the endpoint; without ``stream`` only that, with the right to list streams."""
    try:
        client = world.client(config)
    except KinesisSpoutError as error:
        yield Finding.missing(_ENDPOINT, str(error), "name the region: --region, or AWS_DEFAULT_REGION")
        return
    asked = _Endpoint(client, config.stream)
    yield from asked.stream() if stream else asked.reached()
    if asked.date is not None:
        yield clock(*asked.date)
    elif asked.answered:
        yield Finding.unknown(_CLOCK, "the endpoint's answers have no date")
    if asked.shard_id is not None:
        yield from asked.permissions(asked.shard_id)
        if config.fan_out_consumer is not None:
            yield asked.may_subscribe(asked.shard_id, config.fan_out_consumer)


def owners(world: World, config: SpoutConfig) -> Iterator[Finding]:
    """Look whether somebody reads each shard, if the application has begun."""
    about = "shards' owners"
    try:
        with world.progress(config) as progress:
            if progress.store.read_application() is None:
                return
            view = group_view(progress)
            shards = describe(world.stream(config).lister.list_shards(), progress, view)
    except KinesisSpoutError as error:
        yield Finding.unknown(about, str(error))
        return
    unread = [each.shard_id for each in shards if each.state is ShardState.READY]
    text = (
        f"{len(unread):,} of {len(shards):,} shards have none, {unread[0]} for one"
        if unread
        else "all have one"
    )
    if not unread:
        yield Finding.ok(about, text)
    elif not view.members:
        yield Finding.warning(about, f"{text}: no member is alive", "start a consumer of the application")
    else:
        leads = f"{view.leader} leads" if view.leader else "no member leads"
        yield Finding.missing(
            about,
            f"{text}, although {len(view.members):,} members are alive; {leads}",
            "ask again in a minute: members may be changing; then restart the member that is to lead, by "
            "`kinesis-spout members list`",
        )


def clock(said: str, here: float) -> Finding:
    """Compare the date of an answer, which has whole seconds, with the time here."""
    try:
        there = parsedate_to_datetime(said).timestamp() + 0.5
    except ValueError:
        return Finding.unknown(_CLOCK, f"the endpoint's answers have the date {said!r}")
    ahead = here - there
    if abs(ahead) <= 1:
        return Finding.ok(_CLOCK, "within a second of the endpoint's")
    text = f"{abs(ahead):,.0f} s {'ahead of' if ahead > 0 else 'behind'} the endpoint's"
    if abs(ahead) <= MARGIN_SECONDS:
        return Finding.ok(_CLOCK, text)
    refused = "; AWS refuses requests that are 5 min off" if abs(ahead) >= _REFUSED_SECONDS / 2 else ""
    return Finding.warning(
        _CLOCK,
        f"{text}{refused}",
        "let NTP set it: positions and ends given as times, and `latest`, count on it",
    )


class _Endpoint:
    """Asks one endpoint. Mutable: remembers what its answers tell besides."""

    def __init__(self, client: "KinesisClient", stream: str) -> None:
        from kinesis_spout.kinesis.calls import stream_arguments  # noqa: PLC0415 - --help does not wait for boto3

        self._client = client
        self._stream = stream
        self._arguments = stream_arguments(stream)
        self.date: tuple[str, float] | None = None
        """Of the last answer: its date, and when it came by the clock here."""
        self.answered = False
        self.knows_dry_run = False
        """Whether a read with DryRun was answered as such: another endpoint would carry out what it is asked."""
        self.shard_id: str | None = None
        """One that can be read."""

    @property
    def _text(self) -> str:
        return f"{self._client.meta.endpoint_url}, region {self._client.meta.region_name}"

    def reached(self) -> Iterator[Finding]:
        """Ask for the streams, if none is given."""
        try:
            self._call("ListStreams", lambda: self._client.list_streams(Limit=1))
        except KinesisSpoutError as error:
            if not self.answered:
                yield self._unreached(error)
            else:
                yield Finding.ok(_ENDPOINT, self._text)
                yield Finding.unknown("stream", str(error), "give --stream, to ask for that one")
        else:
            yield Finding.ok(_ENDPOINT, self._text)
            yield Finding.unknown("stream", "not asked for: none is given", "give --stream")

    def stream(self) -> Iterator[Finding]:
        try:
            reply = self._call(
                "DescribeStreamSummary", lambda: self._client.describe_stream_summary(**self._arguments)
            )
        except KinesisSpoutError as error:
            if not self.answered:
                yield self._unreached(error)
                return
            yield Finding.ok(_ENDPOINT, self._text)
            yield self._refused("stream", "DescribeStreamSummary", error)
        else:
            yield Finding.ok(_ENDPOINT, self._text)
            yield _described(self._stream, reply["StreamDescriptionSummary"])
        try:
            listed = self._call("ListShards", lambda: self._client.list_shards(**self._arguments))
        except KinesisSpoutError as error:
            yield self._refused("may list shards", "ListShards", error)
        else:
            yield Finding.ok("may list shards", "yes")
            self.shard_id = next((shard["ShardId"] for shard in reversed(listed["Shards"])), None)

    def permissions(self, shard_id: str) -> Iterator[Finding]:
        """Whether our credentials may read and put; nothing is put."""
        about = "may read records"
        try:
            iterator = self._call(
                "GetShardIterator",
                lambda: self._client.get_shard_iterator(
                    **self._arguments, ShardId=shard_id, ShardIteratorType="LATEST"
                ),
            )["ShardIterator"]
            self.knows_dry_run = self._dry_run(
                "GetRecords", self._client.get_records, ShardIterator=iterator, Limit=1
            )
        except KinesisSpoutError as error:
            yield self._refused(about, "GetShardIterator and GetRecords", error)
        else:
            yield Finding.ok(about, "yes, by DryRun" if self.knows_dry_run else "yes, by a read")
        yield self._may_put() if self.knows_dry_run else _without_dry_run("may put records", "PutRecords")

    def _may_put(self) -> Finding:
        about = "may put records"
        entry = {"Data": b"", "PartitionKey": "doctor"}
        try:
            self._dry_run("PutRecords", self._client.put_records, **self._arguments, Records=[entry])
        except AccessDenied as error:
            return Finding.warning(
                about,
                str(error),
                "only producers, `put` and `redrive` need kinesis:PutRecords; allow it for those",
            )
        except KinesisSpoutError as error:
            return Finding.unknown(about, str(error))
        return Finding.ok(about, "yes, by DryRun")

    def may_subscribe(self, shard_id: str, consumer: str) -> Finding:
        """Ask after the other permissions: without DryRun it would take over a subscription."""
        about = "may subscribe"
        if not self.knows_dry_run:
            return _without_dry_run(about, "SubscribeToShard")
        try:
            summary = self._call(
                "DescribeStreamSummary", lambda: self._client.describe_stream_summary(**self._arguments)
            )["StreamDescriptionSummary"]
            registered = self._call(
                "ListStreamConsumers",
                lambda: self._client.list_stream_consumers(StreamARN=summary["StreamARN"]),
            )["Consumers"]
        except KinesisSpoutError as error:
            return self._refused(about, "ListStreamConsumers", error)
        arn = next((each["ConsumerARN"] for each in registered if each["ConsumerName"] == consumer), None)
        if arn is None:
            return Finding.unknown(about, f"{consumer!r} is not registered yet; a consumer registers it")
        try:
            self._dry_run(
                "SubscribeToShard",
                self._client.subscribe_to_shard,
                ConsumerARN=arn,
                ShardId=shard_id,
                StartingPosition={"Type": "LATEST"},
            )
        except KinesisSpoutError as error:
            return self._refused(about, "SubscribeToShard", error)
        return Finding.ok(about, "yes, by DryRun")

    def _dry_run(self, operation: str, call: Callable[..., Any], **arguments: Any) -> bool:
        """Make a call with DryRun; False if the endpoint does not know it, and carried it out."""
        from botocore.exceptions import ClientError, ParamValidationError  # noqa: PLC0415

        from kinesis_spout.kinesis.calls import error_code  # noqa: PLC0415

        try:
            self._call(operation, lambda: call(**arguments, DryRun=True))
        except KinesisSpoutError as error:
            cause = error.__cause__
            if isinstance(cause, ClientError) and error_code(cause) == _WOULD_SUCCEED:
                return True
            if isinstance(cause, ParamValidationError):  # an older boto3
                return False
            raise
        return False

    def _call(self, operation: str, call: Callable[[], Any]) -> Any:
        from botocore.exceptions import ClientError  # noqa: PLC0415

        from kinesis_spout.kinesis.calls import translated  # noqa: PLC0415

        reply: Any = {}
        try:
            with translated(f"{operation} of {self._stream}"):
                try:
                    reply = call()
                except ClientError as error:
                    reply = error.response
                    raise
        finally:
            metadata = reply.get("ResponseMetadata", {})
            self.answered = self.answered or bool(metadata)
            date = metadata.get("HTTPHeaders", {}).get("date")
            if date is not None:
                self.date = date, time.time()
        return reply

    def _unreached(self, error: KinesisSpoutError) -> Finding:
        return Finding.missing(
            _ENDPOINT,
            f"{self._text}: {error}",
            "see that it can be reached from here; --region and --endpoint-url choose it",
        )

    def _refused(self, about: str, operation: str, error: KinesisSpoutError) -> Finding:
        if isinstance(error, Throttled):
            return Finding.unknown(about, str(error), "ask again later")
        if isinstance(error, AccessDenied):
            return Finding.missing(
                about, str(error), f"allow kinesis: {operation} on the stream {self._stream}"
            )
        return Finding.missing(about, str(error), "check --stream, --region and --endpoint-url")


def _described(stream: str, summary: Any) -> Finding:
    mode = summary.get("StreamModeDetails", {}).get("StreamMode", "").lower().replace("_", "-")
    parts = (
        f"{stream}: {summary['StreamStatus'].lower()}",
        f"{summary['OpenShardCount']} open shards",
        f"kept for {summary['RetentionPeriodHours']} h",
        mode,
        "encrypted" if summary.get("EncryptionType") == "KMS" else "",
        "ignores partition keys" if summary.get("RecordDistributionStrategy") == "AUTO" else "",
    )
    text = ", ".join(part for part in parts if part)
    if summary["StreamStatus"] in {"CREATING", "DELETING"}:
        return Finding.warning("stream", text, "a consumer can begin once it is active")
    return Finding.ok("stream", text)


def _without_dry_run(about: str, operation: str) -> Finding:
    return Finding.unknown(
        about,
        f"this endpoint does not know DryRun of {operation}",
        "a consumer, or `kinesis-spout put`, shows it",
    )
