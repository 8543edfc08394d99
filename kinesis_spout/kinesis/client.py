"""The boto3 client of Kinesis that is made from ``client_settings``.

boto3 provides credentials, roles, signing, endpoints and connections. Four things are changed:

*No retries inside.* The getter and the lister own the retry policy; a retry below them would hide throttles
and hold a thread.

*No parsing of GetRecords.* botocore's parser takes 19 µs per record of 1 KB, msgspec 1.1 µs. So the body of a
good JSON reply is removed before botocore parses it, and returned as bytes under ``RAW_BODY``. botocore
parses all other replies (errors, another content type).

*GetRecords and PutRecords are called with little CPU*; see ``wire``.

*SubscribeToShard returns a socket*, not a parsed stream; see ``fan_out.subscribe_call``.
"""

import os
import ssl
from functools import partial
from typing import TYPE_CHECKING, Any

import boto3
import botocore.exceptions
import botocore.session
from botocore.config import Config
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialProvider,
    CredentialResolver,
    DeferredRefreshableCredentials,
)

from kinesis_spout.kinesis.calls import RAW_BODY, translated
from kinesis_spout.kinesis.client_settings import KinesisClientSettings
from kinesis_spout.kinesis.read.fan_out.subscribe_call import PushedSubscriptions
from kinesis_spout.kinesis.wire.calls import GetRecords, PutRecords, Wire, is_page
from kinesis_spout.model.errors import InvalidConfig

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient


def made_client(settings: KinesisClientSettings) -> "KinesisClient":
    """Make a client. Raises like ``KinesisClientSettings.connect``."""
    with translated("Making a Kinesis client"):
        session, core = sessions_of(settings)
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
    wire = Wire(client, session.get_credentials, ca_bundle)
    PushedSubscriptions(wire)
    _call_by_wire(client, wire)
    return client


def sessions_of(settings: KinesisClientSettings) -> tuple[boto3.Session, botocore.session.Session]:
    """Return the session, and the one of botocore that it stands on or has its credentials from."""
    core = _core(settings)
    session = boto3.Session(
        aws_access_key_id=settings.aws_access_key_id,
        aws_secret_access_key=settings.aws_secret_access_key,
        aws_session_token=settings.aws_session_token,
        region_name=settings.region,
        botocore_session=core,
    )
    if settings.role_arn is None:
        return session, core
    role = _AssumedRole(
        settings.role_arn,
        core,
        region=settings.region,
        endpoint_url=settings.sts_endpoint,
        session_name=settings.role_session_name,
        external_id=settings.role_external_id,
    )
    assumed = _core(settings)
    assumed.register_component("credential_provider", CredentialResolver([role]))
    return boto3.Session(region_name=session.region_name, botocore_session=assumed), core


def _check_proxy(settings: KinesisClientSettings, endpoint_url: str) -> None:
    """Refuse TLS to a proxy for plain HTTP: botocore sends the password before it verifies the proxy."""
    if settings.proxy_url is None or not settings.proxy_url.startswith("https:"):
        return
    for url in (endpoint_url, settings.sts_endpoint or ""):
        if url.startswith("http:"):
            raise InvalidConfig(
                f"proxy_url: expected http:// for the endpoint {url}, which has no TLS, got https://: such a "
                "proxy would not be verified; take http:// for both, or https:// for the endpoint"
            )


def _core(settings: KinesisClientSettings) -> botocore.session.Session:
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


class _AssumedRole(CredentialProvider):
    """Credentials of a role, fetched at the first call and renewed by botocore before they expire.

    Calls to STS use the source's certificates and proxy.
    """

    METHOD = "assume-role"

    def __init__(
        self,
        role_arn: str,
        source: botocore.session.Session,
        *,
        region: str | None,
        endpoint_url: str | None,
        session_name: str,
        external_id: str | None,
    ) -> None:
        super().__init__(source)
        self._role_arn = role_arn
        self._source = source
        self._client = partial(source.create_client, region_name=region, endpoint_url=endpoint_url)
        self._extra = {"RoleSessionName": session_name}
        if external_id is not None:
            self._extra["ExternalId"] = external_id

    def load(self) -> DeferredRefreshableCredentials:
        source = self._source.get_credentials()
        if source is None:
            raise botocore.exceptions.NoCredentialsError
        fetcher = AssumeRoleCredentialFetcher(
            client_creator=self._client,
            source_credentials=source,
            role_arn=self._role_arn,
            extra_args=self._extra,
        )
        return DeferredRefreshableCredentials(fetcher.fetch_credentials, self.METHOD)


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


def _look_at_body(
    *,
    operation_model: Any,
    response_dict: dict[str, Any],
    customized_response_dict: dict[str, Any],
    **_event: object,
) -> None:
    """Take a page. Refuse a body that was cut off: of a throttle botocore would make an unknown error."""
    headers, body = response_dict["headers"], response_dict["body"]
    length, content_type = headers.get("content-length", ""), headers.get("content-type", "")
    if length.isdigit() and isinstance(body, bytes) and len(body) < int(length):
        raise botocore.exceptions.IncompleteReadError(actual_bytes=len(body), expected_bytes=int(length))
    if operation_model.name == "GetRecords" and is_page(response_dict["status_code"], content_type):
        customized_response_dict[RAW_BODY] = body
        response_dict["body"] = b"{}"
