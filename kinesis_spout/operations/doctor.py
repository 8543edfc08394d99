"""Whether what a consumer or a producer needs is there: what an issue report should say.

Nothing is started, changed or put. No finding has a secret, also where an error of a service repeats one.
"""

import importlib.util
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from email.utils import parsedate_to_datetime
from enum import Enum
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kinesis_spout.model.errors import AccessDenied, InvalidConfig, KinesisSpoutError, MissingExtra, Throttled
from kinesis_spout.operations.group import group_view
from kinesis_spout.operations.shards import ShardState, describe
from kinesis_spout.operations.world import World
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.grammar.shard_positions import MARGIN_SECONDS
from kinesis_spout.settings.rules import SECRETS

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

_IN_ENVIRONMENT: Final = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN",
    "AWS_BEARER_TOKEN_BEDROCK", "AWS_CONTAINER_AUTHORIZATION_TOKEN",
)  # fmt: skip
_SHORTEST: Final = 4
"""Characters: a shorter secret would blank out parts of words."""
_IN_URL: Final = re.compile(r"(?<=://)[^/@\s]+@")
_OURS: Final = "kinesis-spout"
_PACKAGES: Final = ("boto3", "botocore", "kazoo", "protobuf", "msgspec")
_ON_SPARK: Final = ("pyspark", "pyarrow", "pandas")
"""What the extra `spark` brings, or a platform."""
_BOUND: Final = re.compile(
    r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?[^;]*?>=\s*([0-9.]+)[^;]*(?:$|;.*extra == .(?:spark|arrow).$)"
)
_LEAST_JAVA: Final = 17
_JAVA_VERSION: Final = re.compile(r'version "(\d+)([^"]*)"')
_SECONDS: Final = 30.0
_ZOOKEEPER_SAYS: Final = re.compile(r"^Zookeeper version: ([^\s,-]+).*^Mode: (\w+)", re.MULTILINE | re.DOTALL)
_WOULD_SUCCEED: Final = "DryRunOperationException"


class Condition(Enum):
    """The result of one check."""

    OK = "ok"
    WARNING = "warning"
    """It works, and something about it will surprise."""
    MISSING = "missing"
    """Something that is needed does not work."""
    UNKNOWN = "not known"
    """It could not be asked."""


@dataclass(frozen=True, slots=True)
class Finding:
    condition: Condition
    about: str
    text: str
    next: str | None = None
    """What to do; None where nothing is to be done."""

    def document(self) -> dict[str, Any]:
        return asdict(self) | {"condition": self.condition.value}


OK, WARNING, MISSING, UNKNOWN = Condition.OK, Condition.WARNING, Condition.MISSING, Condition.UNKNOWN


def examine(world: World, config: SpoutConfig, *, stream: bool = True, app: bool = True) -> Iterator[Finding]:
    """Give one finding after the other; ``stream`` and ``app``: whether they were given, to be asked for."""
    of_settings = {name: value for name, value in msgspec.structs.asdict(config).items() if name in SECRETS}
    in_environment = [*_IN_ENVIRONMENT, *(f"KINESIS_SPOUT_{name.upper()}" for name in SECRETS)]
    secrets = {*of_settings.values(), *map(os.environ.get, in_environment)}
    for finding in _findings(world, config, secrets, stream=stream, app=app):
        next_ = None if finding.next is None else _without(secrets, finding.next)
        yield replace(finding, text=_without(secrets, finding.text), next=next_)


def is_healthy(findings: Iterable[Finding]) -> bool:
    return all(finding.condition is not MISSING for finding in findings)


def _without(secrets: Iterable[str | None], text: str) -> str:
    hidden = {secret for secret in secrets if secret is not None and len(secret) >= _SHORTEST}
    for secret in sorted(hidden, key=len, reverse=True):
        text = text.replace(secret, "***")
    return _IN_URL.sub("***@", text)


def _findings(
    world: World, config: SpoutConfig, secrets: set[str | None], *, stream: bool, app: bool
) -> Iterator[Finding]:
    yield from versions()
    if importlib.util.find_spec("pyspark") is not None or config.zookeeper_hosts is None:
        yield java()
    yield zookeeper(world, config)
    try:
        found = world.credentials(config)
    except KinesisSpoutError as error:
        yield Finding(MISSING, "credentials", str(error), "check the profile, the role and the keys")
    else:
        secrets |= set() if found is None else {found.access_key, found.secret_key, found.token}
        cure = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or aws_profile; an emulator takes any keys"
        none = Finding(MISSING, "credentials", "none found", cure)
        yield none if found is None else Finding(OK, "credentials", f"found: {found.method}")
    yield from kinesis(world, config, stream=stream)
    if stream and app:
        yield from owners(world, config)


def versions() -> Iterator[Finding]:
    yield Finding(OK, "system", f"{platform.platform()}, {os.cpu_count()} processors")
    yield Finding(OK, "Python", f"{platform.python_version()} at {sys.executable}")
    try:
        required = metadata.requires(_OURS) or []
    except metadata.PackageNotFoundError:
        required = []  # it is imported, but not installed
    bounds = map(_BOUND.match, required)
    least = {each[1]: each[2] for each in bounds if each is not None}
    for name in (_OURS, *_ON_SPARK, *_PACKAGES):
        yield _package(name, least.get(name, "0"))


def _package(name: str, least: str) -> Finding:
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        if name not in _ON_SPARK:
            return Finding(MISSING, name, "not installed", f"install it: pip install {name}")
        if importlib.util.find_spec(name) is None:
            return Finding(OK, name, 'not installed; on Spark it needs pip install "kinesis-spout[spark]"')
        version = importlib.import_module(name).__version__  # a platform's own, which pip does not know
    if _numbers(version) < _numbers(least):
        return Finding(
            MISSING,
            name,
            f"{version}, which is older than {least}",
            f"update it: pip install '{name}>={least}'",
        )
    return Finding(OK, name, version)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


def java() -> Finding:
    from kinesis_spout.zookeeper.java_server import find_java  # noqa: PLC0415 - --help does not wait for it

    cure = f"install Java {_LEAST_JAVA}, or set JAVA_HOME to one"
    try:
        path = find_java()
        said = subprocess.run(  # noqa: S603 - a Java of the user's
            [path, "-version"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_SECONDS,
            check=True,
        ).stdout
    except InvalidConfig as error:
        return Finding(MISSING, "Java", "not found", str(error))
    except (OSError, subprocess.SubprocessError) as error:
        return Finding(MISSING, "Java", f"it does not run: {error}", cure)
    version = _JAVA_VERSION.search(said)
    if version is None:
        return Finding(UNKNOWN, "Java", f"{path}: {said.partition(chr(10))[0] or 'says no version'}")
    text = f"{version[1]}{version[2]} at {path}"
    if int(version[1]) < _LEAST_JAVA:
        return Finding(MISSING, "Java", f"{text}; Spark needs {_LEAST_JAVA}", cure)
    return Finding(OK, "Java", text)


def zookeeper(world: World, config: SpoutConfig) -> Finding:
    about, where = "ZooKeeper", config.zookeeper_hosts
    try:
        said = world.zookeeper_answer(config)
    except MissingExtra as error:
        return Finding(MISSING, about, "embedded, without jars to start it from", str(error))
    except KinesisSpoutError as error:
        cure = "see that it runs and can be reached from here; --zookeeper HOST:PORT names another"
        return Finding(MISSING, about, str(error), cure)
    if said is None:
        return Finding(OK, about, "embedded; no process runs it now, the next consumer starts it")
    text = f"reached at {where}" if where is not None else "embedded, and running"
    if (found := _ZOOKEEPER_SAYS.search(said)) is None:
        return Finding(OK, about, f"{text}; version and mode not known: it does not answer `srvr`")
    return Finding(OK, about, f"{text}: {found[1]}, {found[2]}")


def kinesis(world: World, config: SpoutConfig, *, stream: bool) -> Iterator[Finding]:
    """Ask the endpoint, also for the stream and what our credentials may do there."""
    try:
        client = world.client(config)
    except KinesisSpoutError as error:
        yield Finding(MISSING, "endpoint", str(error), "name the region: --region, or AWS_DEFAULT_REGION")
        return
    asked = _Endpoint(client, config.stream)
    found = list(asked.stream() if stream else asked.streams())
    text = f"{client.meta.endpoint_url}, region {client.meta.region_name}"
    if not asked.answered:
        cure = "see that it can be reached from here; --region and --endpoint-url choose it"
        yield Finding(MISSING, "endpoint", f"{text}: {found[0].text}", cure)
        return
    if abs(asked.ahead_seconds) > MARGIN_SECONDS:
        text += (
            f"; the clock here is {asked.ahead_seconds:+,.0f} s from its, and AWS refuses requests 5 min off"
        )
        yield Finding(WARNING, "endpoint", text, "let NTP set the clock")
    else:
        yield Finding(OK, "endpoint", text)
    yield from found


class _Endpoint:
    """Asks one endpoint. Mutable: remembers what its answers tell besides."""

    def __init__(self, client: "KinesisClient", stream: str) -> None:
        from kinesis_spout.kinesis.calls import stream_arguments  # noqa: PLC0415 - --help does not wait for boto3

        self._client = client
        self._stream = stream
        self._of_stream: dict[str, Any] = {**stream_arguments(stream)}
        self.answered = False
        self.ahead_seconds = 0.0
        """By how much the clock here is ahead of the endpoint's."""

    def streams(self) -> Iterator[Finding]:
        found = self._found("stream", lambda: self._call("list_streams", Limit=1) and "")
        yield Finding(UNKNOWN, "stream", found.text or "not asked for: none is given", "give --stream")

    def stream(self) -> Iterator[Finding]:
        def list_shards() -> str:
            shards.extend(self._call("list_shards", **self._of_stream)["Shards"])
            return "yes"

        def read() -> str:
            place = {"ShardId": shards[-1]["ShardId"], "ShardIteratorType": "LATEST"}
            iterator = self._call("get_shard_iterator", **self._of_stream, **place)["ShardIterator"]
            dry.append(self._dry_run("get_records", ShardIterator=iterator, Limit=1))
            return "yes, by DryRun" if dry[0] else "yes, by a read"

        def put() -> str:
            entry = {"Data": b"", "PartitionKey": "doctor"}
            self._dry_run("put_records", **self._of_stream, Records=[entry])
            return "yes, by DryRun"

        shards: list[Any] = []
        dry: list[bool] = []
        yield self._found("stream", lambda: _described(self._stream, self._summary()))
        if not self.answered:
            return
        yield self._found("may list shards", list_shards)
        if not shards:
            return
        yield self._found("may read records", read)
        if any(dry):
            yield self._found("may put records", put, WARNING)
        else:  # it would carry out what it is asked
            text = "this endpoint does not know DryRun of PutRecords"
            yield Finding(UNKNOWN, "may put records", text, "`kinesis-spout put` shows it")

    def _summary(self) -> Any:
        return self._call("describe_stream_summary", **self._of_stream)["StreamDescriptionSummary"]

    def _found(self, about: str, ask: Callable[[], str], denied: Condition = MISSING) -> Finding:
        try:
            return Finding(OK, about, ask())
        except Throttled as error:
            return Finding(UNKNOWN, about, str(error), "ask again later")
        except AccessDenied as error:
            needed = "" if denied is MISSING else "; only producers, `put` and `redrive` need it"
            return Finding(denied, about, str(error), f"allow it on the stream {self._stream}{needed}")
        except KinesisSpoutError as error:
            return Finding(MISSING, about, str(error), "check --stream, --region and --endpoint-url")

    def _dry_run(self, method: str, **arguments: Any) -> bool:
        """Make a call with DryRun; False if the endpoint, or boto3, does not know it."""
        from botocore.exceptions import ClientError, ParamValidationError  # noqa: PLC0415

        from kinesis_spout.kinesis.calls import error_code  # noqa: PLC0415

        try:
            self._call(method, **arguments, DryRun=True)
        except KinesisSpoutError as error:
            cause = error.__cause__
            if isinstance(cause, ClientError) and error_code(cause) == _WOULD_SUCCEED:
                return True
            if not isinstance(cause, ParamValidationError):
                raise
        return False

    def _call(self, method: str, **arguments: Any) -> Any:
        from botocore.exceptions import ClientError  # noqa: PLC0415

        from kinesis_spout.kinesis.calls import translated  # noqa: PLC0415

        reply: Any = {}
        try:
            with translated(f"{self._client.meta.method_to_api_mapping[method]} of {self._stream}"):
                try:
                    reply = getattr(self._client, method)(**arguments)
                except ClientError as error:
                    reply = error.response
                    raise
        finally:
            said = reply.get("ResponseMetadata", {})
            self.answered = self.answered or bool(said)
            try:
                there = parsedate_to_datetime(said["HTTPHeaders"]["date"]).timestamp() + 0.5
                self.ahead_seconds = time.time() - there
            except (KeyError, ValueError):
                pass  # it has no date
        return reply


def _described(stream: str, summary: Any) -> str:
    mode = summary.get("StreamModeDetails", {}).get("StreamMode", "").lower().replace("_", "-")
    parts = (
        f"{stream}: {summary['StreamStatus'].lower()}",
        f"{summary['OpenShardCount']} open shards",
        f"kept for {summary['RetentionPeriodHours']} h",
        mode,
        "encrypted" if summary.get("EncryptionType") == "KMS" else "",
        "ignores partition keys" if summary.get("RecordDistributionStrategy") == "AUTO" else "",
    )
    return ", ".join(part for part in parts if part)


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
        yield Finding(UNKNOWN, about, str(error))
        return
    unread = [each.shard_id for each in shards if each.state is ShardState.READY]
    if not unread:
        yield Finding(OK, about, "all have one")
        return
    text = f"{len(unread):,} of {len(shards):,} shards have none, {unread[0]} for one"
    if not view.members:
        yield Finding(WARNING, about, f"{text}: no member is alive", "start a consumer of the application")
        return
    text += f", although {len(view.members):,} members are alive; {view.leader or 'no member'} leads"
    cure = "ask again in a minute, as members may change; then restart whom `members list` says is to lead"
    yield Finding(MISSING, about, text, cure)
