"""Which streams, and how to reach them: the options that every read and write shares."""

import re
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from kinesis_spout.config import SpoutConfig
from kinesis_spout.errors import InvalidConfig
from kinesis_spout.kinesis import KinesisClientSettings
from kinesis_spout.structured.options.given import GivenOptions

_AWS_ENDPOINT: Final = re.compile(
    r"(?:.+\.)?(?:data-|control-)?kinesis(?:-fips)?\.([a-z0-9-]+)\."
    r"(?:(?:vpce\.)?amazonaws\.com(?:\.cn)?|api\.aws)"
)
_NO_STREAM: Final = "-" * 128
"""Stands for the stream where a spout's rules want one; long enough to be nobody's."""
_ROLE_OPTIONS: Final = ("roleSessionName", "roleExternalId", "stsEndpoint")


def checked_by_spout(option: str, setting: str, value: str, **others: Any) -> str:
    """Check what a spout has as a setting, too, by the spout's rules.

    Raises:
        InvalidConfig: in the spout's words, about the option.
    """
    settings = {"stream": _NO_STREAM, "app": "unnamed", **others, setting: value}
    try:
        SpoutConfig.of(**settings)
    except InvalidConfig as error:
        raise InvalidConfig(f"option {option}: {str(error).removeprefix(f'{setting}: ')}") from error
    return value


def streams_to_read(given: GivenOptions) -> tuple[str, ...]:
    """Give the streams, by name or by ARN, in the order in which they were named."""
    option = _stream_option(given)
    if option is None:
        raise InvalidConfig("no stream is named: expected the option streamName or streamARN")
    return tuple(_stream(given, option, stream) for stream in given.names(option))


def stream_to_write(given: GivenOptions) -> str | None:
    """Give the stream, by name or by ARN; None if none is named."""
    option = _stream_option(given)
    text = None if option is None else given.text(option)
    return None if option is None or text is None else _stream(given, option, text)


def client_settings(
    given: GivenOptions, streams: Sequence[str], *, connections: int = 0
) -> KinesisClientSettings:
    """Give the settings of a client for these streams that keeps at least so many connections."""
    for one, other in (("awsAccessKey", "awsSecretKey"), ("awsSecretKey", "awsAccessKey")):
        if one in given and other not in given:
            raise given.refuse(one, f"expected {other} beside it: the two go together")
    if "sessionToken" in given and "awsAccessKey" not in given:
        raise given.refuse("sessionToken", "expected awsAccessKey and awsSecretKey beside it")
    for name in _ROLE_OPTIONS:
        if name in given and "roleArn" not in given:
            raise given.refuse(name, "expected roleArn beside it: it says nothing otherwise")
    usual = KinesisClientSettings()
    return KinesisClientSettings(
        region=_region(given, streams),
        endpoint_url=given.url("endpointUrl"),
        access_key=given.text("awsAccessKey"),
        secret_key=given.text("awsSecretKey"),
        session_token=given.text("sessionToken"),
        role_arn=_role(given, "roleArn", "role_arn"),
        role_session_name=_role(given, "roleSessionName", "role_session_name") or usual.role_session_name,
        role_external_id=given.text("roleExternalId"),
        sts_endpoint_url=given.url("stsEndpoint"),
        max_connections=max(usual.max_connections, connections),
    )


def _stream_option(given: GivenOptions) -> str | None:
    if "streamName" in given and "streamARN" in given:
        raise given.refuse("streamARN", "expected either streamName or streamARN, got both; leave one out")
    return next((name for name in ("streamName", "streamARN") if name in given), None)


def _stream(given: GivenOptions, option: str, stream: str) -> str:
    if stream.startswith("arn:") != (option == "streamARN"):
        right, kind = ("streamName", "a name") if option == "streamARN" else ("streamARN", "an ARN")
        raise given.refuse(option, f"{stream[:160]!r} is {kind}: give it as {right}")
    return checked_by_spout(option, "stream", stream)


def _role(given: GivenOptions, option: str, setting: str) -> str | None:
    text = given.text(option)
    if text is None:
        return None
    return checked_by_spout(option, setting, text, role_arn=given.text("roleArn"))


def _region(given: GivenOptions, streams: Sequence[str]) -> str | None:
    """Give the region that was set, that of the ARNs, or that of an endpoint of AWS, which must agree."""
    said = given.text("region")
    if said is not None and not re.fullmatch(r"[a-z0-9-]{1,63}", said):
        raise given.refuse("region", f"expected a region such as eu-central-1, got {said[:160]!r}")
    of_streams = {stream.split(":")[3] for stream in streams if stream.startswith("arn:")}
    if len(of_streams) > 1:
        found = ", ".join(sorted(of_streams))
        raise given.refuse("streamARN", f"expected streams of one region, got {found}; read them one by one")
    of_stream = next(iter(of_streams), None)
    if said is not None and of_stream not in (None, said):
        raise given.refuse("region", f"expected {of_stream!r}, the region of the stream's ARN, got {said!r}")
    region = said or of_stream
    of_endpoint = _region_of_endpoint(given.url("endpointUrl"))
    if region is not None and of_endpoint not in (None, region):
        raise given.refuse("endpointUrl", f"expected one in region {region!r}, got one in {of_endpoint!r}")
    return region or of_endpoint


def _region_of_endpoint(url: str | None) -> str | None:
    """Give the region that is part of the name of AWS' own endpoints."""
    host = None if url is None else urlsplit(url).hostname
    match = None if host is None else _AWS_ENDPOINT.fullmatch(host)
    return None if match is None else match[1]
