"""The boto3 client of Kinesis that is made from ``client_settings``.

boto3 provides credentials, roles, endpoints and the rare calls. Four things are changed:

*No retries inside.* The getter and the lister own the retry policy; a retry below them would hide throttles
and hold a thread.

*GetRecords and PutRecords go over connections of our own*, with little CPU; see ``wire``. The body of a page is
not decoded, but returned under ``RAW_BODY``: botocore's parser takes 19 µs per record of 1 KB, msgspec 1.1 µs.

*Credentials and the clock* are looked after; see ``wire.credentials``.

*SubscribeToShard returns a socket*, not a parsed stream; see ``fan_out.subscribe_call``.
"""

import os
import re
import ssl
from functools import partial
from typing import TYPE_CHECKING, Any

import boto3
import botocore.exceptions
import botocore.session
from botocore.config import Config
from botocore.credentials import AssumeRoleCredentialFetcher, Credentials, DeferredRefreshableCredentials

from kinesis_spout.kinesis.calls import translated
from kinesis_spout.kinesis.read.fan_out.subscribe_call import PushedSubscriptions
from kinesis_spout.kinesis.wire.calls import GetRecords, PutRecords, Wire
from kinesis_spout.kinesis.wire.credentials import Signing
from kinesis_spout.model.errors import InvalidConfig

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

    from kinesis_spout.kinesis.client_settings import KinesisClientSettings


def made_client(settings: "KinesisClientSettings") -> "KinesisClient":
    """Make a client. Raises like ``KinesisClientSettings.connect``."""
    with translated("Making a Kinesis client"):
        session, core, signing = sessions_of(settings)
        client = session.client(
            "kinesis",
            endpoint_url=settings.endpoint_url,
            config=Config(
                connect_timeout=settings.connect_timeout_seconds,
                read_timeout=settings.read_timeout_seconds,
                max_pool_connections=settings.max_connections,
                retries={"total_max_attempts": 1, "mode": "standard"},
                tcp_keepalive=True,
            ),
        )
    _check_proxy(settings, client.meta.endpoint_url)
    client.meta.events.register("before-parse.kinesis", _look_at_body)
    ca_bundle = core.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE")
    wire = Wire(client, signing, ca_bundle)
    PushedSubscriptions(wire)
    _call_by_wire(client, wire)
    return client


def sessions_of(settings: "KinesisClientSettings") -> tuple[boto3.Session, botocore.session.Session, Signing]:
    """Return a session, that of botocore that it stands on, and what signs the calls of its clients."""

    def look_up() -> Credentials | None:
        """Begin anew, so that files are read again."""
        source = _core(settings)
        signing.serve_sources(source)
        return _found(settings, source)

    core, signing = _core(settings), Signing(look_up)
    if settings.region is None:
        _check_region_found(core)
    signing.serve(core)
    return boto3.Session(region_name=settings.region, botocore_session=core), core, signing


def _found(settings: "KinesisClientSettings", source: botocore.session.Session) -> Credentials | None:
    """Find credentials. Those of a role are fetched later, by the source's certificates and proxy."""
    if settings.aws_access_key_id is not None:
        keys: Any = (settings.aws_access_key_id, settings.aws_secret_access_key, settings.aws_session_token)
        source.set_credentials(*keys)
    found: Credentials | None = source.get_credentials()
    if found is None or settings.role_arn is None:
        return found
    names = {"RoleSessionName": settings.role_session_name, "ExternalId": settings.role_external_id}
    fetcher = AssumeRoleCredentialFetcher(
        client_creator=partial(
            source.create_client, region_name=settings.region, endpoint_url=settings.sts_endpoint
        ),
        source_credentials=found,
        role_arn=settings.role_arn,
        extra_args={name: value for name, value in names.items() if value is not None},
    )
    return DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")


def _check_proxy(settings: "KinesisClientSettings", endpoint_url: str) -> None:
    """Refuse TLS to a proxy for plain HTTP: botocore sends the password before it verifies the proxy."""
    if settings.proxy_url is None or not settings.proxy_url.startswith("https:"):
        return
    for url in (endpoint_url, settings.sts_endpoint or ""):
        if url.startswith("http:"):
            raise InvalidConfig(
                f"proxy_url: expected http:// for the endpoint {url}, which has no TLS, got https://: such a "
                "proxy would not be verified; take http:// for both, or https:// for the endpoint"
            )


def _check_region_found(core: botocore.session.Session) -> None:
    """Refuse what botocore would build an endpoint with: it takes an empty variable for a region, too."""
    found = core.get_config_variable("region")
    if found is not None and not re.fullmatch(r"[A-Za-z0-9-]{1,63}", found):
        is_variable = os.environ.get("AWS_DEFAULT_REGION") == found
        where = (
            "the variable AWS_DEFAULT_REGION" if is_variable else f"the profile {core.profile or 'default'!r}"
        )
        raise InvalidConfig(
            f"region: expected a region such as eu-central-1, got {found!r} from {where}: correct it there, or "
            "set `region`"
        )


def _core(settings: "KinesisClientSettings") -> botocore.session.Session:
    """Make a session with the proxy, CA bundle and kind of endpoint of every service, also for credentials."""
    core = botocore.session.Session(profile=settings.aws_profile)
    if settings.ca_bundle is not None:
        _check_certificates(settings.ca_bundle)
        core.set_config_variable("ca_bundle", settings.ca_bundle)
    of_all: dict[str, Any] = {
        "use_fips_endpoint": settings.use_fips_endpoint,
        "use_dualstack_endpoint": settings.use_dualstack_endpoint,
    }
    if settings.proxy_url is not None:
        of_all["proxies"] = dict.fromkeys(("http", "https"), settings.proxy_url)
    core.set_default_client_config(Config(**of_all))
    return core


def _check_certificates(path: str) -> None:
    """Refuse a file that would make every call fail as if Kinesis were unreachable."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
    except OSError as error:  # includes ssl.SSLError
        raise InvalidConfig(
            f"ca_bundle: expected a PEM file with certificates, on every executor too, got {path!r}: {error}"
        ) from error


def _call_by_wire(client: "KinesisClient", wire: Wire) -> None:
    close = client.close

    def close_both() -> None:
        close()
        wire.close()

    client.get_records = GetRecords(wire)  # type: ignore[method-assign]
    client.put_records = PutRecords(wire)  # type: ignore[method-assign]
    client.close = close_both  # type: ignore[method-assign]


def _look_at_body(*, response_dict: dict[str, Any], **_event: object) -> None:
    """Refuse a body that was cut off: of a throttle botocore would make an unknown error."""
    headers, body = response_dict["headers"], response_dict["body"]
    length = headers.get("content-length", "")
    if length.isdigit() and isinstance(body, bytes) and len(body) < int(length):
        raise botocore.exceptions.IncompleteReadError(actual_bytes=len(body), expected_bytes=int(length))
