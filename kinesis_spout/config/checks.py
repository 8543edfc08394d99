"""What must hold between settings, or of one beyond its type."""

import math
import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kinesis_spout.config.initial_position import parse_initial_position
from kinesis_spout.config.refusals import refuse
from kinesis_spout.config.value_types import STREAM_NAME

if TYPE_CHECKING:
    from kinesis_spout.config.settings import SpoutConfig


def check(config: "SpoutConfig") -> None:
    """Refuse what the types of the settings do not.

    Raises:
        InvalidConfig: names the setting, its value and what is allowed.
    """
    _check_numbers(config)
    _check_names(config)
    _check_aws(config)
    _check_dead_letters(config)
    parse_initial_position(config.initial_position)
    _check_retries(config)


def _check_numbers(config: "SpoutConfig") -> None:
    for name in config.__struct_fields__:
        value = getattr(config, name)
        if isinstance(value, float) and not math.isfinite(value):
            refuse(name, value, "a finite number")


def _check_names(config: "SpoutConfig") -> None:
    # ZooKeeper refuses "." and ".." in a path; in the default directory of the dead letters they would climb.
    for name, parts in (
        ("stream", [config.stream_name]),
        ("app", [config.app]),
        ("zookeeper_root", [config.zookeeper_root]),
        ("zookeeper", (config.zookeeper_hosts or "").split("/")),
    ):
        if not {".", ".."}.isdisjoint(parts):
            refuse(name, getattr(config, name), "no '.' or '..' as a name: ZooKeeper does not take them")
    if config.zookeeper_root == "zookeeper":
        refuse("zookeeper_root", config.zookeeper_root, "another name: ZooKeeper keeps /zookeeper for itself")


def _check_aws(config: "SpoutConfig") -> None:
    if (config.aws_access_key_id is None) != (config.aws_secret_access_key is None):
        missing = "aws_access_key_id" if config.aws_access_key_id is None else "aws_secret_access_key"
        refuse(missing, None, "a value: aws_access_key_id and aws_secret_access_key go together")
    if config.aws_session_token is not None and config.aws_access_key_id is None:
        refuse("aws_session_token", config.aws_session_token, "none without aws_access_key_id")
    if config.role_arn is None:
        for name in ("role_session_name", "role_external_id", "sts_endpoint"):
            if getattr(config, name) is not None:
                refuse(name, getattr(config, name), "none without role_arn: it would have no effect")
    if config.stream_arn and config.region not in (None, config.stream.split(":")[3]):
        refuse("region", config.region, f"the region of the stream's ARN, {config.stream.split(':')[3]!r}")
    for name in ("endpoint_url", "sts_endpoint", "dead_letters"):
        value = getattr(config, name)
        if value is not None and urlsplit(value).password is not None:
            refuse(name, value, "a URL without a password: it would show in logs and messages")


def _check_dead_letters(config: "SpoutConfig") -> None:
    url = config.dead_letters
    if url is None:
        return
    scheme, separator, rest = url.partition("://")
    if not separator:
        if re.match(r"[a-z][a-z0-9+.-]+:/", url):
            refuse("dead_letters", url, "two slashes after the scheme, or a path without one")
        return
    if scheme == "file" and not rest.startswith("/"):
        refuse("dead_letters", url, f"three slashes before a local directory: file:///{rest.lstrip('/')}")
    if scheme == "kinesis":
        if not re.fullmatch(STREAM_NAME, rest):
            refuse("dead_letters", url, "kinesis://<stream name>")
        if rest == config.stream_name:
            refuse("dead_letters", url, "another stream: the spout would read its own dead letters")


def _check_retries(config: "SpoutConfig") -> None:
    if config.retry_backoff_cap_seconds < config.retry_backoff_seconds:
        refuse(
            "retry_backoff_cap_seconds",
            config.retry_backoff_cap_seconds,
            f"at least retry_backoff_seconds, which is {config.retry_backoff_seconds}",
        )
