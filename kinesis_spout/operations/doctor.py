"""Checks what a consumer or a producer needs: what an issue report should say.

Nothing is started, changed or put. No finding has a secret, also where an error of a service repeats one.
"""

import importlib.util
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from kinesis_spout.model.errors import AccessDenied, InvalidConfig, KinesisSpoutError, MissingExtra, Throttled
from kinesis_spout.model.extras import check_spark
from kinesis_spout.operations.world import World
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.rules import SECRETS

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

_SHORTEST: Final = 4
"""Characters: a shorter secret would blank out parts of words."""
_IN_URL: Final = re.compile(r"(?<=://)[^/@\s]+@")
_PACKAGES: Final = ("kinesis-spout", "boto3", "botocore", "kazoo", "msgspec")
_ON_SPARK: Final = ("pyspark", "pyarrow", "pandas")
"""Packages of the extra `spark`, or of a platform."""
_LEAST_JAVA: Final = 17
_JAVA_VERSION: Final = re.compile(r'version "(\d+)([^"]*)"')
_SECONDS: Final = 30.0
_ZOOKEEPER_SAYS: Final = re.compile(r"^Zookeeper version: ([^\s,-]+).*^Mode: (\w+)", re.MULTILINE | re.DOTALL)
_WOULD_SUCCEED: Final = "DryRunOperationException"
_BY_DRY_RUN: Final = "yes, by DryRun"


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
    """The next step; None if nothing is to be done."""

    def document(self) -> dict[str, Any]:
        return asdict(self) | {"condition": self.condition.value}


OK, WARNING, MISSING, UNKNOWN = Condition.OK, Condition.WARNING, Condition.MISSING, Condition.UNKNOWN


def examine(world: World, config: SpoutConfig, *, stream: bool = True) -> Iterator[Finding]:
    """Give one finding after the other; ``stream`` says that one was given, to be asked for."""
    secrets: set[str | None] = {getattr(config, name) for name in SECRETS}
    for finding in _findings(world, config, secrets, stream=stream):
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
    world: World, config: SpoutConfig, secrets: set[str | None], *, stream: bool
) -> Iterator[Finding]:
    yield from versions()
    if importlib.util.find_spec("pyspark") is not None or config.zookeeper_hosts is None:
        yield java()
    yield zookeeper(world, config)
    try:
        method, keys = world.credentials(config)
    except KinesisSpoutError as error:
        cure = (
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role; an emulator takes any keys"
        )
        yield Finding(MISSING, "credentials", str(error), cure)
        yield Finding(UNKNOWN, "endpoint", "not asked: each request is signed with credentials")
        return
    secrets |= keys
    yield Finding(OK, "credentials", f"found: {method}")
    yield from kinesis(world, config, stream=stream)


def versions() -> Iterator[Finding]:
    yield Finding(OK, "system", f"{platform.platform()}, {os.cpu_count()} processors")
    yield Finding(OK, "Python", f"{platform.python_version()} at {sys.executable}")
    for name in (*_PACKAGES, *_ON_SPARK):
        yield _package(name)


def _package(name: str) -> Finding:
    module = name.replace("-", "_")
    if importlib.util.find_spec(module) is None:
        if name in _ON_SPARK:
            return Finding(OK, name, 'not installed; on Spark it needs pip install "kinesis-spout[spark]"')
        return Finding(MISSING, name, "not installed", f"install it: pip install {name}")
    if name == "pyspark":
        try:
            check_spark("this installation")
        except MissingExtra as error:
            return Finding(MISSING, name, "too old, or not whole", str(error))
    return Finding(OK, name, importlib.import_module(module).__version__)


def java() -> Finding:
    from kinesis_spout.zookeeper.java_server import find_java  # noqa: PLC0415 - --help does not wait for it

    cure = f"install Java {_LEAST_JAVA}, or set JAVA_HOME to one"
    try:
        command = [find_java(), "-version"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)  # noqa: S603
    except InvalidConfig as error:
        return Finding(MISSING, "Java", "not found", str(error))
    except (OSError, subprocess.SubprocessError) as error:
        return Finding(MISSING, "Java", f"it does not run: {error}", cure)
    version = _JAVA_VERSION.search(ran.stderr + ran.stdout)
    if version is None:
        return Finding(UNKNOWN, "Java", f"{command[0]} says no version")
    text = f"{version[1]}{version[2]} at {command[0]}"
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
    yield Finding(OK, "endpoint", text)
    yield from found


class _Endpoint:
    """Asks one endpoint. Mutable: remembers whether it has answered."""

    def __init__(self, client: "KinesisClient", stream: str) -> None:
        from kinesis_spout.kinesis.calls import stream_arguments  # noqa: PLC0415 - --help does not wait for boto3

        self._client = client
        self._stream = stream
        self._of_stream: dict[str, Any] = {**stream_arguments(stream)}
        self.answered = False

    def streams(self) -> Iterator[Finding]:
        found = self._found("stream", lambda: self._call("list_streams", Limit=1) and "")
        yield Finding(UNKNOWN, "stream", found.text or "not asked for: none is given", "give --stream")

    def stream(self) -> Iterator[Finding]:
        yield self._found("stream", self._described)
        if not self.answered:
            return
        reads = self._found("may read records", self._read)
        yield reads
        if reads.text == _BY_DRY_RUN:
            yield self._found("may put records", self._put, WARNING)
        else:  # it would carry out what it is asked
            text = "not asked: no read has shown that this endpoint knows DryRun"
            yield Finding(UNKNOWN, "may put records", text, "`kinesis-spout put` shows it")

    def _described(self) -> str:
        summary = self._call("describe_stream_summary", **self._of_stream)["StreamDescriptionSummary"]
        state, hours = summary["StreamStatus"].lower(), summary["RetentionPeriodHours"]
        text = f"{self._stream}: {state}, {summary['OpenShardCount']} open shards, kept for {hours} h"
        is_spread: bool = summary.get("RecordDistributionStrategy") == "AUTO"
        return text + ", ignores partition keys" * is_spread

    def _read(self) -> str:
        shards = self._call("list_shards", **self._of_stream)["Shards"]
        if not shards:
            return "nothing to read: it lists no shard"
        place = {"ShardId": shards[-1]["ShardId"], "ShardIteratorType": "LATEST"}
        iterator = self._call("get_shard_iterator", **self._of_stream, **place)["ShardIterator"]
        reply = self._call("get_records", ShardIterator=iterator, Limit=1, DryRun=True)
        return _BY_DRY_RUN if reply is None else "yes, by a read"

    def _put(self) -> str:
        records = [{"Data": b"", "PartitionKey": "doctor"}]
        self._call("put_records", **self._of_stream, Records=records, DryRun=True)
        return _BY_DRY_RUN

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

    def _call(self, method: str, **arguments: Any) -> Any:
        """Make a call; None: with ``DryRun``, it would succeed."""
        from botocore.exceptions import ClientError  # noqa: PLC0415

        from kinesis_spout.kinesis.calls import error_code, translated  # noqa: PLC0415

        with translated(f"{self._client.meta.method_to_api_mapping[method]} of {self._stream}"):
            try:
                reply = getattr(self._client, method)(**arguments)
            except ClientError as error:
                self.answered = True
                if error_code(error) != _WOULD_SUCCEED:
                    raise
                return None
        self.answered = True
        return reply
