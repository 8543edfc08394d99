"""The settings of a connection to Kinesis, which can be pickled, and the boto3 client made from them.

boto3 provides credentials, roles, signing, endpoints and connections. Five things are changed:

*No retries inside.* The getter and the lister own the retry policy; a retry below them would hide throttles
and hold a thread.

*No parsing of GetRecords.* botocore's parser takes 19 µs per record of 1 KB, msgspec 1.1 µs. So the body of a
good JSON reply is removed before botocore parses it, and returned as bytes under ``RAW_BODY``. botocore
parses all other replies (errors, another content type).

*Bodies are read in one piece*; see ``whole_body``.

*GetRecords and PutRecords are called with little CPU*; see ``wire``.

*SubscribeToShard returns a socket*, not a parsed stream; see ``fan_out.subscribe_call``.
"""

import os
import ssl
import threading
from dataclasses import dataclass, field
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

from kinesis_spout.kinesis.calls import CONTENT_TYPE, RAW_BODY, translated
from kinesis_spout.kinesis.read.fan_out.subscribe_call import PushedSubscriptions
from kinesis_spout.kinesis.wire.calls import GetRecords, PutRecords, Wire, is_page
from kinesis_spout.kinesis.wire.whole_body import WholeBodySession, endpoint_of
from kinesis_spout.model.errors import InvalidConfig

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient


@dataclass(frozen=True, slots=True, kw_only=True)
class KinesisClientSettings:
    """Endpoint and credentials. Can be pickled, hashed and compared; its repr shows no secrets.

    boto3 finds what is None in its usual way: environment, shared configuration, instance role. Fields have
    the names of the settings.
    """

    region: str | None = None
    endpoint_url: str | None = None
    """Instead of AWS's endpoint: an emulator, or a VPC endpoint."""
    aws_access_key_id: str | None = field(default=None, repr=False)
    aws_secret_access_key: str | None = field(default=None, repr=False)
    aws_session_token: str | None = field(default=None, repr=False)
    aws_profile: str | None = None
    """Of the shared configuration: its credentials (keys, a role, SSO, a process), region and endpoints."""
    role_arn: str | None = None
    """A role to assume with the credentials above; botocore renews its session."""
    role_session_name: str = "kinesis-spout"
    role_external_id: str | None = field(default=None, repr=False)
    sts_endpoint: str | None = None
    ca_bundle: str | None = None
    """A PEM file, on every machine: the only CA certificates that verify endpoints."""
    proxy_url: str | None = field(default=None, repr=False)
    """For all calls, also to STS and SSO; may hold a password. None: as the environment says."""
    use_fips_endpoint: bool | None = None
    """Of every service that is called. None, here and below: as the environment and the profile say."""
    use_dualstack_endpoint: bool | None = None
    wire_format: str = "json"
    """What GetRecords asks for: json, or cbor. An endpoint that refuses CBOR is asked for JSON."""
    connect_timeout_seconds: float = 5.0
    read_timeout_seconds: float = 20.0
    """A page of 10 MiB must pass in this time."""
    max_connections: int = 32
    """Connections kept open per process; more threads may call, but reconnect."""

    def connect(self) -> "KinesisClient":
        """Return this process's client for these settings: thread-safe, made once and kept.

        Spark reuses its Python workers, so the connections and the assumed role outlive a task.

        Raises:
            InvalidConfig: no region is set, a profile does not exist, the CA bundle is no PEM file, or the
                proxy would not be verified.
        """
        key = (os.getpid(), self)  # a forked child must not share its parent's sockets
        with _lock:
            client = _clients.get(key)
            if client is None:
                client = _clients[key] = self.create()
            return client

    def create(self) -> "KinesisClient":
        """Make a client that is not shared. Raises like ``connect``."""
        with translated("Making a Kinesis client"):
            session, core = self._sessions()
            client = session.client(
                "kinesis",
                endpoint_url=self.endpoint_url,
                config=Config(
                    connect_timeout=self.connect_timeout_seconds,
                    read_timeout=self.read_timeout_seconds,
                    max_pool_connections=self.max_connections,
                    retries={"total_max_attempts": 1, "mode": "standard"},
                    tcp_keepalive=True,
                ),
            )
        self._check_proxy(client.meta.endpoint_url)
        client.meta.events.register("before-parse.kinesis.GetRecords", _take_body)
        endpoint = endpoint_of(client)
        endpoint.http_session = WholeBodySession(endpoint.http_session)
        PushedSubscriptions(client)
        ca_bundle = core.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE")
        asks_cbor = self.wire_format == "cbor"
        _call_by_wire(client, Wire(client, session.get_credentials, ca_bundle, asks_cbor=asks_cbor))
        return client

    def session(self) -> boto3.Session:
        """Return a session with the region and the credentials, those of the assumed role if one is named.

        Its clients of other services use the same proxy and CA bundle.

        Raises:
            InvalidConfig: the CA bundle is no PEM file.
            botocore.exceptions.BotoCoreError: a profile does not exist, or cannot be read.
        """
        return self._sessions()[0]

    def _sessions(self) -> tuple[boto3.Session, botocore.session.Session]:
        """Return the session, and the one of botocore that it stands on or has its credentials from."""
        core = self._core()
        session = boto3.Session(
            aws_access_key_id=self.aws_access_key_id,
            aws_secret_access_key=self.aws_secret_access_key,
            aws_session_token=self.aws_session_token,
            region_name=self.region,
            botocore_session=core,
        )
        if self.role_arn is None:
            return session, core
        role = _AssumedRole(
            self.role_arn,
            core,
            region=self.region,
            endpoint_url=self.sts_endpoint,
            session_name=self.role_session_name,
            external_id=self.role_external_id,
        )
        assumed = self._core()
        assumed.register_component("credential_provider", CredentialResolver([role]))
        return boto3.Session(region_name=session.region_name, botocore_session=assumed), core

    def _check_proxy(self, endpoint_url: str) -> None:
        """Refuse TLS to a proxy for plain HTTP: botocore sends the password before it verifies the proxy."""
        if self.proxy_url is None or not self.proxy_url.startswith("https:"):
            return
        for url in (endpoint_url, self.sts_endpoint or ""):
            if url.startswith("http:"):
                raise InvalidConfig(
                    f"proxy_url: expected http:// for the endpoint {url}, which has no TLS, got https://: such a "
                    "proxy would not be verified; take http:// for both, or https:// for the endpoint"
                )

    def _core(self) -> botocore.session.Session:
        """Make a session with the proxy, CA bundle and kind of endpoint of every service, also for credentials."""
        core = botocore.session.Session(profile=self.aws_profile)
        if self.ca_bundle is not None:
            _check_certificates(self.ca_bundle)
            core.set_config_variable("ca_bundle", self.ca_bundle)
        of_all: dict[str, Any] = {
            "use_fips_endpoint": self.use_fips_endpoint,
            "use_dualstack_endpoint": self.use_dualstack_endpoint,
        }
        if self.proxy_url is not None:
            of_all["proxies"] = dict.fromkeys(("http", "https"), self.proxy_url)
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


def _take_body(
    *, response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_event: object
) -> None:
    content_type = response_dict["headers"].get("content-type", "")
    if is_page(response_dict["status_code"], content_type):
        customized_response_dict[RAW_BODY] = response_dict["body"]
        customized_response_dict[CONTENT_TYPE] = content_type
        response_dict["body"] = b"{}"


_lock = threading.Lock()
_clients: dict[tuple[int, KinesisClientSettings], "KinesisClient"] = {}

# Another thread may hold the lock at a fork; the child starts with a free one and no clients.
if hasattr(os, "register_at_fork"):

    def _forget_in_child() -> None:
        global _lock  # noqa: PLW0603 - a lock cannot be reset, only replaced
        _lock = threading.Lock()
        _clients.clear()

    os.register_at_fork(after_in_child=_forget_in_child)
