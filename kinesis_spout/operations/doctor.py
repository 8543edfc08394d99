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

from kinesis_spout.model.errors import (
    AccessDenied,
    InvalidConfig,
    KinesisSpoutError,
    MissingExtra,
    Throttled,
    Unavailable,
)
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
_DENIED: Final = frozenset({"AccessDeniedException", "AccessDenied", "NotAuthorized"})
"""The codes for a permission that is missing. Other refusals of AWS are about the credentials."""
_REACH_IT: Final = "see that it runs and can be reached from here; --region and --endpoint-url choose it"
_NO_STREAM: Final = "check --stream, --region, --endpoint-url, and the account of the credentials"


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
    can_start = True
    if importlib.util.find_spec("pyspark") is not None or config.zookeeper_hosts is None:
        found = java()
        can_start = found.condition is not MISSING
        yield found
    yield zookeeper(world, config, can_start=can_start)
    try:
        method, keys = world.credentials(config)
    except InvalidConfig as error:  # of the region, or the CA bundle
        yield Finding(MISSING, "endpoint", str(error), "correct this setting; the rest is asked then")
        return
    except KinesisSpoutError as error:
        cure = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role"
        if isinstance(error, Unavailable):
            cure = "see that the service that gives them (STS, SSO, the machine's) can be reached from here"
        yield _failed(MISSING, "credentials", error, cure)
        yield Finding(UNKNOWN, "endpoint", "not asked: a request needs credentials, and there are none")
        return
    secrets |= keys
    yield Finding(OK, "credentials", f"found: {method}")
    yield from kinesis(world, config, stream=stream)


def _failed(condition: Condition, about: str, error: KinesisSpoutError, cure: str) -> Finding:
    """Make a finding of an error: the remedy that its message ends with is the next step, else ``cure``."""
    return Finding(condition, about, str(error).removesuffix(f"; {error.remedy}"), error.remedy or cure)


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


def zookeeper(world: World, config: SpoutConfig, *, can_start: bool = True) -> Finding:
    about, where = "ZooKeeper", config.zookeeper_hosts
    try:
        said = world.zookeeper_answer(config)
    except MissingExtra as error:
        return Finding(MISSING, about, "embedded, without jars to start it from", str(error))
    except KinesisSpoutError as error:
        cure = "see that it runs and can be reached from here; --zookeeper HOST:PORT names another"
        return Finding(MISSING, about, str(error), cure)
    if said is None and not can_start:
        return Finding(UNKNOWN, about, "embedded; no process runs it now, and it needs Java to start")
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
        yield _failed(MISSING, "endpoint", error, "check --region and --endpoint-url")
        return
    asked = _Endpoint(client, config.stream)
    found = list(asked.stream() if stream else asked.streams())
    if not asked.answered:
        yield Finding(MISSING, "endpoint", found[0].text, _REACH_IT)
        return
    yield Finding(OK, "endpoint", f"{client.meta.endpoint_url}, region {client.meta.region_name}")
    yield from found


class _Endpoint:
    """Asks one endpoint. Mutable: remembers whether it has answered."""

    def __init__(self, client: "KinesisClient", stream: str) -> None:
        from kinesis_spout.kinesis.calls import stream_arguments  # noqa: PLC0415 - --help does not wait for boto3

        self._client = client
        self._stream = stream
        self._of_stream: dict[str, Any] = {**stream_arguments(stream)}
        self.answered = False
        self._is_over = False
        """True if each further request would fail as the last one did."""

    def streams(self) -> Iterator[Finding]:
        found = self._found("stream", lambda: self._call("list_streams", Limit=1) and "")
        yield Finding(UNKNOWN, "stream", found.text or "not asked for: none is given", "give --stream")

    def stream(self) -> Iterator[Finding]:
        yield self._found("stream", self._described)
        if not self.answered or self._is_over:
            return
        reads = self._found("may read records", self._read)
        yield reads
        if reads.text == _BY_DRY_RUN:
            yield self._found("may put records", self._put, WARNING)
        else:  # it would carry out what it is asked
            text = "not asked: this endpoint has not shown that it knows DryRun, so it would be a real put"
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
        from botocore.exceptions import ClientError  # noqa: PLC0415

        from kinesis_spout.kinesis.calls import ResourceNotFound, error_code  # noqa: PLC0415

        try:
            return Finding(OK, about, ask())
        except Throttled as error:
            return Finding(UNKNOWN, about, str(error), "ask again later")
        except AccessDenied as error:
            text = str(error).removesuffix(f"; {error.remedy}")
            cause = error.__cause__
            if not isinstance(cause, ClientError) or error_code(cause) not in _DENIED:
                self._is_over = True
                cure = "give credentials that this endpoint takes: keys, a profile or a role; check the clock here"
                return Finding(MISSING, about, text, cure)
            needed = "" if denied is MISSING else "; only producers, `put` and `redrive` need it"
            return Finding(denied, about, text, f"allow it on the stream {self._stream}{needed}")
        except ResourceNotFound:
            self._is_over = True
            where = f"{self._client.meta.region_name} at {self._client.meta.endpoint_url}"
            return Finding(MISSING, about, f"{self._stream}: no such stream in {where}", _NO_STREAM)
        except KinesisSpoutError as error:
            return _failed(MISSING, about, error, _NO_STREAM)

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
