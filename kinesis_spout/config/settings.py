"""Every setting of a spout, as one frozen value that is valid or does not exist.

The type, the range and the meaning of a setting are written once, in its annotation: the checks, the error
messages and the option tables of the README and the command line all come from there.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, Unpack

import msgspec
from msgspec import Meta

from kinesis_spout.config.checks import check
from kinesis_spout.config.initial_position import parse_initial_position
from kinesis_spout.config.keywords import SpoutSettings
from kinesis_spout.config.refusals import SECRETS, shown
from kinesis_spout.config.sources import build, from_environment, from_keywords, from_toml_file
from kinesis_spout.config.value_types import (
    MIB,
    AppName,
    Count,
    RoleArn,
    RoleSessionName,
    Seconds,
    SomeSeconds,
    StreamNameOrArn,
    Text,
    Url,
    ZooKeeperHosts,
    ZooKeeperRoot,
)
from kinesis_spout.ports import DEFAULT_SESSION_TIMEOUT_SECONDS, MAX_SESSION_TIMEOUT_SECONDS
from kinesis_spout.settings.positions import ALLOWED as INITIAL_POSITIONS
from shard_state import Position


class SpoutConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one spout. Make it with `of`, `from_env`, `from_toml` or `load`, which check the types.

    Raises:
        InvalidConfig: from each of them; names the setting, its value (never a secret's) and what is allowed.
    """

    stream: Annotated[StreamNameOrArn, Meta(description="The Kinesis stream to read: its name or its ARN.")]
    app: Annotated[
        AppName,
        Meta(
            description="The application's name. Spouts of one name have one progress: one works, others stand by."
        ),
    ]
    zookeeper: Annotated[
        ZooKeeperHosts,
        Meta(description="Where progress is kept. `embedded` starts the ZooKeeper that PySpark ships."),
    ] = "embedded"
    zookeeper_root: Annotated[
        ZooKeeperRoot, Meta(description="The node that all applications' nodes are below.")
    ] = "kinesis_spout"
    session_timeout_seconds: Annotated[
        float,
        Meta(
            ge=1,
            le=MAX_SESSION_TIMEOUT_SECONDS,
            description="How long ZooKeeper waits for a silent spout before it frees its shards.",
        ),
    ] = DEFAULT_SESSION_TIMEOUT_SECONDS

    region: Annotated[
        Text | None, Meta(description="The AWS region; none: the stream ARN's, else boto3's own rules.")
    ] = None
    endpoint_url: Annotated[
        Url | None, Meta(description="A Kinesis endpoint other than AWS's, for emulators and VPC endpoints.")
    ] = None
    role_arn: Annotated[RoleArn | None, Meta(description="A role to assume for reading the stream.")] = None
    role_session_name: Annotated[
        RoleSessionName | None, Meta(description="The session's name in CloudTrail; with role_arn only.")
    ] = None
    role_external_id: Annotated[
        Text | None, Meta(description="The external id that the role demands; with role_arn only.")
    ] = None
    sts_endpoint: Annotated[
        Url | None, Meta(description="An STS endpoint other than AWS's; with role_arn only.")
    ] = None
    aws_access_key_id: Annotated[
        Text | None,
        Meta(description="Static credentials, with aws_secret_access_key; none: boto3's own rules."),
    ] = None
    aws_secret_access_key: Annotated[
        Text | None, Meta(description="The secret that belongs to aws_access_key_id.")
    ] = None
    aws_session_token: Annotated[
        Text | None, Meta(description="The token of temporary credentials; with aws_access_key_id only.")
    ] = None

    initial_position: Annotated[
        str,
        Meta(
            title=INITIAL_POSITIONS,
            description="Where the first start of the application begins; later starts go on from progress.",
        ),
    ] = "latest"
    fail_on_data_loss: Annotated[
        bool,
        Meta(
            description="Stop with an error when records were trimmed unread; false: report it and go on at "
            "the oldest record."
        ),
    ] = True

    retry_limit: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="How often a failed record is tried again; 0: never, none: for ever."),
    ] = 3
    retry_backoff_seconds: Annotated[Seconds, Meta(description="The delay before the first retry.")] = 1.0
    retry_backoff_multiplier: Annotated[
        float, Meta(ge=1, description="By what the delay grows from retry to retry.")
    ] = 2.0
    retry_backoff_cap_seconds: Annotated[Seconds, Meta(description="The longest delay before a retry.")] = (
        60.0
    )
    retry_jitter: Annotated[
        float,
        Meta(ge=0, le=1, description="The share of a delay that is random, so that retries spread out."),
    ] = 0.1
    order: Annotated[
        Literal["unordered", "key", "shard"],
        Meta(
            description="Who waits while a failed record waits: nobody, later records of its partition key, "
            "or its whole shard."
        ),
    ] = "unordered"
    message_timeout_seconds: Annotated[
        SomeSeconds | None,
        Meta(description="After this long without an ack or fail a record counts as failed; none: never."),
    ] = 300.0
    breaker_failure_ratio: Annotated[
        Annotated[float, Meta(gt=0, le=1)] | None,
        Meta(
            description="Pause, and give nothing up, once this share of the last outcomes failed; none: never."
        ),
    ] = 0.9
    breaker_window: Annotated[
        Count,
        Meta(
            description="The last outcomes that breaker_failure_ratio looks at, once there are 100 (or so many)."
        ),
    ] = 1_000

    max_pending: Annotated[
        Count, Meta(description="Records per shard that may be emitted and not finished.")
    ] = 20_000
    max_holes: Annotated[
        Count, Meta(description="Finished runs beyond a shard's checkpoint before its reading pauses.")
    ] = 2_000
    max_buffered_bytes: Annotated[
        int,
        Meta(ge=10 * MIB, description="Data the driver keeps for retries and read-ahead, over all shards."),
    ] = 256 * MIB
    max_records_per_fetch: Annotated[
        int, Meta(ge=1, le=10_000, description="The limit of one GetRecords call.")
    ] = 10_000
    max_records_per_slice: Annotated[
        Count, Meta(description="Records of one shard in one micro-batch, at most.")
    ] = 100_000
    max_bytes_per_slice: Annotated[
        Count, Meta(description="Bytes of one shard in one micro-batch; one page may go beyond.")
    ] = 64 * MIB
    shards_per_task: Annotated[Count, Meta(description="Shards that one Spark task reads concurrently.")] = 8
    max_concurrent_batches: Annotated[
        Count, Meta(description="Micro-batches, over different shards, that may run at the same time.")
    ] = 2
    poll_interval_seconds: Annotated[
        float,
        Meta(
            ge=0.2, description="The pause between reads of a shard at its tip; AWS allows 5 calls/s a shard."
        ),
    ] = 0.4
    idle_poll_interval_seconds: Annotated[
        Seconds, Meta(description="How rare polls of a shard get on Spark, while nothing comes.")
    ] = 1.0
    max_batch_seconds: Annotated[
        Seconds,
        Meta(
            description="How long a micro-batch goes on handling records; at most twice that, and one read."
        ),
    ] = 5.0
    shard_list_interval_seconds: Annotated[
        SomeSeconds, Meta(description="How often the stream's shards are listed, to notice resharding.")
    ] = 10.0
    commit_interval_seconds: Annotated[
        SomeSeconds, Meta(description="How often progress is written to ZooKeeper.")
    ] = 1.0
    stop_timeout_seconds: Annotated[
        Seconds,
        Meta(description="How long a stop waits for what is in flight, before it leaves it for later."),
    ] = 30.0
    dead_letters: Annotated[
        Text | None,
        Meta(
            description="Where records that were given up are kept: a directory, file:///directory, "
            "s3://bucket/prefix, kinesis://stream, or any Hadoop URL (hdfs://, s3a://); none: "
            "`.kinesis-spout/<app>/<stream>/dead-letters`."
        ),
    ] = None

    @classmethod
    def of(cls, **settings: Unpack[SpoutSettings]) -> Self:
        """Make a configuration from keyword arguments alone."""
        return build(cls, from_keywords(cls, settings))

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ, **overrides: Unpack[SpoutSettings]) -> Self:
        """Make a configuration from ``KINESIS_SPOUT_*`` variables; every such variable must be a setting.

        Not counted are those that Kubernetes sets for a Service named kinesis-spout.
        """
        return build(cls, from_environment(cls, environ) | from_keywords(cls, overrides))

    @classmethod
    def from_toml(cls, path: str | Path, **overrides: Unpack[SpoutSettings]) -> Self:
        """Make a configuration from a TOML file: its table ``[kinesis_spout]``, or the file if it has none.

        A relative path inside the file stays relative to where the process runs.
        """
        return build(cls, from_toml_file(cls, Path(path)) | from_keywords(cls, overrides))

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        environ: Mapping[str, str] | None = None,
        **overrides: Unpack[SpoutSettings],
    ) -> Self:
        """Make a configuration from keyword arguments over the environment over a TOML file, if given."""
        in_file = {} if path is None else from_toml_file(cls, Path(path))
        in_environment = from_environment(cls, os.environ if environ is None else environ)
        return build(cls, in_file | in_environment | from_keywords(cls, overrides))

    def __post_init__(self) -> None:
        check(self)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={shown(name, getattr(self, name))}" for name in self.__struct_fields__)
        return f"SpoutConfig({fields})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        hidden = {name: "***" for name in SECRETS if values[name] is not None}
        return list((values | hidden).items())

    @property
    def stream_name(self) -> str:
        """The stream's name, also where its ARN was given."""
        return self.stream.rpartition("/")[2]

    @property
    def stream_arn(self) -> str | None:
        """The stream's ARN, if that was given."""
        return self.stream if self.stream.startswith("arn:") else None

    @property
    def stream_region(self) -> str | None:
        """The region that was set, else that of the ARN; None leaves the choice to boto3."""
        return self.region or (self.stream.split(":")[3] if self.stream_arn else None)

    @property
    def start(self) -> Position:
        """The initial position as a place to read from; LATEST is not resolved here."""
        return parse_initial_position(self.initial_position)

    @property
    def zookeeper_hosts(self) -> str | None:
        """The connection string of the ensemble; None for the embedded server."""
        return None if self.zookeeper.partition(":")[0] == "embedded" else self.zookeeper

    @property
    def zookeeper_directory(self) -> str | None:
        """The data directory named for the embedded server, if one was."""
        return None if self.zookeeper_hosts else self.zookeeper.partition(":")[2] or None

    @property
    def dead_letters_url(self) -> str:
        """Where dead letters go: the URL or path that was set, or the default directory."""
        return self.dead_letters or f".kinesis-spout/{self.app}/{self.stream_name}/dead-letters"
