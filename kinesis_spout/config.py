"""Every setting of a spout, as one frozen value that is valid or does not exist.

Settings come from three places: keyword arguments over environment variables (such as
``KINESIS_SPOUT_RETRY_LIMIT=3``) over a TOML file. Each setting is checked by itself, against the type written
next to it, and then against the others. The text ``none`` stands for None wherever None is allowed, because
TOML and the environment have no None of their own.

The type, the range and the meaning of a setting are written once, in its annotation: the checks, the error
messages and the option tables of the README and the command line all come from there.
"""

import difflib
import math
import os
import re
import tomllib
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, NoReturn, Union, get_args, get_origin
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from kinesis_spout.errors import InvalidConfig
from shard_state import Position

ENVIRONMENT_PREFIX: Final = "KINESIS_SPOUT_"
TOML_TABLE: Final = "kinesis_spout"

MIB: Final = 1024 * 1024
LAST_EPOCH_SECOND: Final = datetime(9999, 12, 31, tzinfo=UTC).timestamp()

_STREAM_NAME: Final = r"[a-zA-Z0-9_.-]{1,128}"
_STREAM_ARN: Final = rf"arn:aws[a-z-]*:kinesis:[a-z0-9-]+:\d{{12}}:stream/{_STREAM_NAME}"
_ROLE_ARN: Final = r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+"
_HOST: Final = r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}"
_CHROOT: Final = r"(/[^/,\s]+)+"
_ZOOKEEPER: Final = rf"embedded(:.+)?|{_HOST}(,{_HOST})*({_CHROOT})?"

Text = Annotated[str, Meta(min_length=1)]
Seconds = Annotated[float, Meta(ge=0)]
SomeSeconds = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]
Url = Annotated[str, Meta(pattern=r"\Ahttps?://[^\s/]+", title="an http:// or https:// URL")]


class SpoutConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one spout. Make it with `of`, `from_env`, `from_toml` or `load`, which check the types.

    Raises:
        InvalidConfig: from each of them; names the setting, its value (never a secret's) and what is allowed.
    """

    stream: Annotated[
        str,
        Meta(
            pattern=rf"\A({_STREAM_NAME}|{_STREAM_ARN})\Z",
            title="a stream name (1 to 128 of a-z A-Z 0-9 _ . -) or a stream ARN",
            description="The Kinesis stream to read: its name or its ARN.",
        ),
    ]
    app: Annotated[
        str,
        Meta(
            pattern=r"\A[A-Za-z0-9_.-]{1,128}\Z",
            title="1 to 128 of a-z A-Z 0-9 _ . -",
            description="The application's name. Spouts of one name share the stream's shards and progress.",
        ),
    ]
    zookeeper: Annotated[
        str,
        Meta(
            pattern=rf"\A({_ZOOKEEPER})\Z",
            title="'embedded', 'embedded:<directory>' or 'host:port,host:port[/chroot]'",
            description="Where progress is kept. `embedded` starts the ZooKeeper that PySpark ships.",
        ),
    ] = "embedded"
    zookeeper_root: Annotated[
        str,
        Meta(
            pattern=r"\A[A-Za-z0-9_.-]+\Z",
            title="letters, digits, '_', '.' and '-'; for a deeper place, give zookeeper a chroot",
            description="The node that all applications' nodes are below.",
        ),
    ] = "kinesis_spout"
    session_timeout_seconds: Annotated[
        float,
        Meta(
            ge=1,
            le=120,
            description="How long ZooKeeper waits for a silent spout before it frees its shards.",
        ),
    ] = 6.0

    region: Annotated[
        Text | None, Meta(description="The AWS region; none: the stream ARN's, else boto3's own rules.")
    ] = None
    endpoint_url: Annotated[
        Url | None, Meta(description="A Kinesis endpoint other than AWS's, for emulators and VPC endpoints.")
    ] = None
    role_arn: Annotated[
        Annotated[str, Meta(pattern=rf"\A{_ROLE_ARN}\Z", title="an IAM role ARN")] | None,
        Meta(description="A role to assume for reading the stream."),
    ] = None
    role_session_name: Annotated[
        Annotated[str, Meta(pattern=r"\A[\w+=,.@-]{2,64}\Z", title="2 to 64 of a-z A-Z 0-9 _ + = , . @ -")]
        | None,
        Meta(description="The session's name in CloudTrail; with role_arn only."),
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
            title="latest, trim_horizon, earliest, an ISO-8601 time with zone, or seconds since the epoch",
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
    ] = 0.2
    idle_poll_interval_seconds: Annotated[
        Seconds, Meta(description="How rare polls of a shard get on Spark, while nothing comes.")
    ] = 1.0
    max_batch_seconds: Annotated[
        Seconds,
        Meta(description="How long the slices of a micro-batch go on reading and handling records."),
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
            "kinesis://stream, or any Hadoop URL (hdfs://, s3a://); none: "
            "`.kinesis-spout/<app>/<stream>/dead-letters`."
        ),
    ] = None

    @classmethod
    def of(cls, **settings: Any) -> "SpoutConfig":
        """Make a configuration from keyword arguments alone."""
        return _build(_from_keywords(settings))

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ, **overrides: Any) -> "SpoutConfig":
        """Make a configuration from ``KINESIS_SPOUT_*`` variables; every such variable must be a setting."""
        return _build(_from_environment(environ) | _from_keywords(overrides))

    @classmethod
    def from_toml(cls, path: str | Path, **overrides: Any) -> "SpoutConfig":
        """Make a configuration from a TOML file: its table ``[kinesis_spout]``, or the file if it has none.

        A relative path inside the file stays relative to where the process runs.
        """
        return _build(_from_toml(Path(path)) | _from_keywords(overrides))

    @classmethod
    def load(
        cls, path: str | Path | None = None, environ: Mapping[str, str] | None = None, **overrides: Any
    ) -> "SpoutConfig":
        """Make a configuration from keyword arguments over the environment over a TOML file, if given."""
        from_file = {} if path is None else _from_toml(Path(path))
        from_environment = _from_environment(os.environ if environ is None else environ)
        return _build(from_file | from_environment | _from_keywords(overrides))

    def __post_init__(self) -> None:
        _check_numbers(self)
        _check_names(self)
        _check_aws(self)
        _check_dead_letters(self)
        _position(self.initial_position)
        if self.retry_backoff_cap_seconds < self.retry_backoff_seconds:
            _refuse(
                "retry_backoff_cap_seconds",
                self.retry_backoff_cap_seconds,
                f"at least retry_backoff_seconds, which is {self.retry_backoff_seconds}",
            )

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={_shown(name, getattr(self, name))}" for name in self.__struct_fields__)
        return f"SpoutConfig({shown})"

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
        return _position(self.initial_position)

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


SECRETS: Final = frozenset({"aws_access_key_id", "aws_secret_access_key", "aws_session_token"})
"""Settings whose values appear in no message and no repr."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One setting, as a row of an option table."""

    name: str
    type_text: str
    """What is allowed: "int >= 0, or none"."""
    default: str
    """The default as text: "required" where there is none, and "none" for None."""
    doc: str


def options() -> Iterator[Option]:
    """Describe every setting, in the order in which `SpoutConfig` declares them."""
    for field in msgspec.structs.fields(SpoutConfig):
        default = "required" if field.required else _default_text(field.name, field.default)
        yield Option(
            name=field.name,
            type_text=_allowed_text(field.type),
            default=default,
            doc=_metas(field.type)[-1].description or "",
        )


class _Setting(NamedTuple):
    value: Any
    source: str
    """How a message calls the place it came from; empty for a keyword argument."""
    strict: bool = True
    """Whether text must not be read as a number; the environment has nothing but text."""


def _from_keywords(settings: Mapping[str, Any]) -> dict[str, _Setting]:
    _refuse_unknown(settings, "keyword argument")
    return {name: _Setting(value, "") for name, value in settings.items()}


def _from_environment(environ: Mapping[str, str]) -> dict[str, _Setting]:
    variables = {name: value for name, value in environ.items() if name.startswith(ENVIRONMENT_PREFIX)}
    _refuse_unknown(variables, "environment variable", spelled=_variable)
    known = {_variable(name): name for name in SpoutConfig.__struct_fields__}
    return {known[name]: _Setting(value, name, strict=False) for name, value in variables.items()}


def _from_toml(path: Path) -> dict[str, _Setting]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidConfig(
            f"expected a readable TOML file at {str(path)!r}, got {error.strerror}: correct the path"
        ) from error
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError
        raise InvalidConfig(f"expected TOML in {str(path)!r}, got something else: {error}") from error
    table = document.get(TOML_TABLE, document)
    if not isinstance(table, dict):
        raise InvalidConfig(
            f"expected a table [{TOML_TABLE}] in {str(path)!r}, got one {type(table).__name__} of that name"
        )
    _refuse_unknown(table, f"key in {str(path)!r}")
    return {name: _Setting(value, str(path)) for name, value in table.items()}


def _variable(name: str) -> str:
    return ENVIRONMENT_PREFIX + name.upper()


def _refuse_unknown(given: Mapping[str, Any], what: str, spelled: Callable[[str], str] = str) -> None:
    # The value stays out of the message: an unknown key may be a misspelt secret.
    allowed = [spelled(name) for name in SpoutConfig.__struct_fields__]
    for name in given:
        if name not in allowed:
            near = difflib.get_close_matches(name, allowed)
            advice = f"did you mean {' or '.join(near)}?" if near else f"expected one of {', '.join(allowed)}"
            raise InvalidConfig(f"unknown {what} {name!r}: {advice}")


def _build(settings: Mapping[str, _Setting]) -> SpoutConfig:
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(SpoutConfig):
        setting = settings.get(field.name)
        if setting is None:
            if field.required:
                raise InvalidConfig(
                    f"{field.name} is required: expected {_allowed_text(field.type)}, got nothing; set it as "
                    f"a keyword argument, as {_variable(field.name)}, or in a TOML file"
                )
            continue
        try:
            values[field.name] = msgspec.convert(
                _plain(field, setting.value), field.type, strict=setting.strict
            )
        except msgspec.ValidationError as error:
            origin = f" (from {setting.source})" if setting.source else ""
            raise InvalidConfig(
                f"{field.name}{origin}: expected {_allowed_text(field.type)}, "
                f"got {_shown(field.name, setting.value)}"
            ) from error
    return SpoutConfig(**values)


def _plain(field: msgspec.structs.FieldInfo, value: Any) -> Any:
    """Turn the natural ways of writing a value (``none``, a date, a number of seconds) into the typed one."""
    if isinstance(value, str) and value.lower() == "none" and _is_optional(field.type):
        return None
    if field.name == "initial_position" and not isinstance(value, bool):
        if isinstance(value, datetime):
            return value.isoformat()
        if isinstance(value, (int, float)):
            return repr(value)
    return value


def _position(text: str) -> Position:
    match text.lower():
        case "latest":
            return Position.latest()
        case "trim_horizon" | "earliest":
            return Position.trim_horizon()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        seconds = float(text)
        if seconds > LAST_EPOCH_SECOND:
            _refuse("initial_position", text, "seconds since the epoch; this looks like milliseconds")
        return Position.at_timestamp(seconds)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        _refuse("initial_position", text, _allowed_text(SpoutConfig.__annotations__["initial_position"]))
    if moment.tzinfo is None:
        _refuse("initial_position", text, "a time with its zone, as in 2026-01-31T12:00:00Z")
    return Position.at_timestamp(moment.timestamp())


def _check_numbers(config: SpoutConfig) -> None:
    for name in config.__struct_fields__:
        value = getattr(config, name)
        if isinstance(value, float) and not math.isfinite(value):
            _refuse(name, value, "a finite number")


def _check_names(config: SpoutConfig) -> None:
    # ZooKeeper refuses "." and ".." in a path; in the default directory of the dead letters they would climb.
    for name, parts in (
        ("stream", [config.stream_name]),
        ("app", [config.app]),
        ("zookeeper_root", [config.zookeeper_root]),
        ("zookeeper", (config.zookeeper_hosts or "").split("/")),
    ):
        if not {".", ".."}.isdisjoint(parts):
            _refuse(name, getattr(config, name), "no '.' or '..' as a name: ZooKeeper does not take them")
    if config.zookeeper_root == "zookeeper":
        _refuse(
            "zookeeper_root", config.zookeeper_root, "another name: ZooKeeper keeps /zookeeper for itself"
        )


def _check_aws(config: SpoutConfig) -> None:
    if (config.aws_access_key_id is None) != (config.aws_secret_access_key is None):
        missing = "aws_access_key_id" if config.aws_access_key_id is None else "aws_secret_access_key"
        _refuse(missing, None, "a value: aws_access_key_id and aws_secret_access_key go together")
    if config.aws_session_token is not None and config.aws_access_key_id is None:
        _refuse("aws_session_token", config.aws_session_token, "none without aws_access_key_id")
    if config.role_arn is None:
        for name in ("role_session_name", "role_external_id", "sts_endpoint"):
            if getattr(config, name) is not None:
                _refuse(name, getattr(config, name), "none without role_arn: it would have no effect")
    if config.stream_arn and config.region not in (None, config.stream.split(":")[3]):
        _refuse("region", config.region, f"the region of the stream's ARN, {config.stream.split(':')[3]!r}")
    for name in ("endpoint_url", "sts_endpoint", "dead_letters"):
        value = getattr(config, name)
        if value is not None and urlsplit(value).password is not None:
            _refuse(name, value, "a URL without a password: it would show in logs and messages")


def _check_dead_letters(config: SpoutConfig) -> None:
    url = config.dead_letters
    if url is None:
        return
    scheme, separator, rest = url.partition("://")
    if not separator:
        if re.match(r"[a-z][a-z0-9+.-]+:/", url):
            _refuse("dead_letters", url, "two slashes after the scheme, or a path without one")
        return
    if scheme == "file" and not rest.startswith("/"):
        _refuse("dead_letters", url, f"three slashes before a local directory: file:///{rest.lstrip('/')}")
    if scheme == "kinesis":
        if not re.fullmatch(_STREAM_NAME, rest):
            _refuse("dead_letters", url, "kinesis://<stream name>")
        if rest == config.stream_name:
            _refuse("dead_letters", url, "another stream: the spout would read its own dead letters")


def _refuse(name: str, value: Any, allowed: str) -> NoReturn:
    raise InvalidConfig(f"{name}: expected {allowed}, got {_shown(name, value)}")


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "None"
    if name in SECRETS:
        return "'***'"
    if isinstance(value, str) and "@" in value:  # what stands before it may be a password
        scheme, separator, rest = value.rpartition("://")
        value = f"{scheme}{separator}***@{rest.rpartition('@')[2]}"
    return repr(value)


def _metas(annotation: Any) -> list[Meta]:
    return [meta for meta in get_args(annotation)[1:] if isinstance(meta, Meta)]


def _is_optional(annotation: Any) -> bool:
    bare = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    return type(None) in get_args(bare)


def _allowed_text(annotation: Any) -> str:
    if get_origin(annotation) is Annotated:
        bare, metas = get_args(annotation)[0], _metas(annotation)
        title = next((meta.title for meta in metas if meta.title), None)
        return title or _allowed_text(bare) + "".join(_range_text(meta) for meta in metas)
    if get_origin(annotation) in (Union, types.UnionType):
        return _allowed_text(get_args(annotation)[0]) + ", or none"
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(get_args(annotation))
    return _TYPE_NAMES[annotation]


_TYPE_NAMES: Final = {str: "text", bool: "true or false", int: "int", float: "float"}


def _range_text(meta: Meta) -> str:
    bounds = ((">=", meta.ge), (">", meta.gt), ("<=", meta.le))
    text = " and ".join(f"{sign} {_number_text(bound)}" for sign, bound in bounds if bound is not None)
    return f" {text}" if text else ""


def _default_text(name: str, default: Any) -> str:
    if default is None:
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default // MIB} MiB" if "_bytes" in name else _number_text(default)


def _number_text(number: Any) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number}"
