"""How to reach Kinesis: settings that travel, and the boto3 client made from them.

boto3 does what it is good at: credentials, roles, signing, endpoints, connections. Five things are changed.

*No retries inside.* The getter and the lister own the retry policy; a retry below them would hide throttles
and hold a thread.

*No parsing of GetRecords.* botocore's parser costs 19 µs per record of 1 KB, msgspec 1.1 µs. So the body of a
good JSON reply is taken away before botocore parses it, and handed over as bytes under ``RAW_BODY``. What is
not a good JSON reply (errors, another content type) goes botocore's way.

*Bodies are read in one piece*; see ``whole_body``.

*GetRecords is called with little CPU*; see ``lean_calls``.

*SubscribeToShard gives a socket*, not a parsed stream; see ``fan_out.subscribe_call``.
"""

import os
import threading
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import boto3
import botocore.session
from botocore.config import Config
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialProvider,
    CredentialResolver,
    DeferredRefreshableCredentials,
)

from kinesis_spout.kinesis.errors import translated
from kinesis_spout.kinesis.read.fan_out.subscribe_call import PushedSubscriptions
from kinesis_spout.kinesis.read.lean_calls import RAW_BODY, LeanGetRecords, is_good_json
from kinesis_spout.kinesis.read.whole_body import WholeBodySession

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient


@dataclass(frozen=True, slots=True, kw_only=True)
class KinesisClientSettings:
    """Where Kinesis is and who asks. Can be pickled, hashed and compared; secrets stay out of its text.

    What is None is found the way boto3 finds it: environment, shared configuration, instance role.
    """

    region: str | None = None
    endpoint_url: str | None = None
    """Another endpoint than AWS' own: an emulator, or a VPC endpoint."""
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    role_arn: str | None = None
    """A role to assume with the credentials above; its session renews itself."""
    role_session_name: str = "kinesis-spout"
    role_external_id: str | None = field(default=None, repr=False)
    sts_endpoint_url: str | None = None
    connect_timeout_seconds: float = 5.0
    read_timeout_seconds: float = 20.0
    """A page of 10 MiB must pass in this time."""
    max_connections: int = 32
    """Kept open per process; more threads than this may still call, but reconnect."""

    def connect(self) -> "KinesisClient":
        """Give this process's client of these settings: thread-safe, made once, kept for the next caller.

        Spark reuses its Python workers, so the connections and the assumed role outlive a task.

        Raises:
            InvalidConfig: no region is set anywhere, or a profile does not exist.
        """
        key = (os.getpid(), self)  # a forked child must not share its parent's sockets
        with _lock:
            client = _clients.get(key)
            if client is None:
                client = _clients[key] = self.create()
            return client

    def create(self) -> "KinesisClient":
        """Make a new client, which nobody else uses. Raises like ``connect``."""
        with translated("Making a Kinesis client"):
            client = self.session().client(
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
        client.meta.events.register("before-parse.kinesis.GetRecords", _take_body)
        endpoint: Any = client._endpoint  # type: ignore[attr-defined]  # noqa: SLF001 - botocore offers no other way
        endpoint.http_session = WholeBodySession(endpoint.http_session)
        client.get_records = LeanGetRecords(client)  # type: ignore[method-assign]
        PushedSubscriptions(client)
        return client

    def session(self) -> boto3.Session:
        """Give a session with the region and the credentials, those of the assumed role if one is named.

        Raises:
            botocore.exceptions.BotoCoreError: a profile does not exist, or cannot be read.
        """
        core = botocore.session.Session()
        session = boto3.Session(
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            aws_session_token=self.session_token,
            region_name=self.region,
            botocore_session=core,
        )
        if self.role_arn is None:
            return session
        assumed = botocore.session.Session()
        assumed.register_component(
            "credential_provider", CredentialResolver([_AssumedRole(self, self.role_arn, core)])
        )
        return boto3.Session(region_name=session.region_name, botocore_session=assumed)


class _AssumedRole(CredentialProvider):
    """Credentials of a role, fetched at the first call and renewed by botocore before they expire."""

    METHOD = "assume-role"

    def __init__(
        self, settings: KinesisClientSettings, role_arn: str, source: botocore.session.Session
    ) -> None:
        super().__init__(source)
        self._settings = settings
        self._role_arn = role_arn
        self._source = source

    def load(self) -> DeferredRefreshableCredentials:
        """Give the credentials; called by botocore, once per session."""
        source = self._source.get_credentials()
        if source is None:
            raise botocore.exceptions.NoCredentialsError
        extra = {"RoleSessionName": self._settings.role_session_name}
        if self._settings.role_external_id is not None:
            extra["ExternalId"] = self._settings.role_external_id
        fetcher = AssumeRoleCredentialFetcher(
            client_creator=partial(
                self._source.create_client,
                region_name=self._settings.region,
                endpoint_url=self._settings.sts_endpoint_url,
            ),
            source_credentials=source,
            role_arn=self._role_arn,
            extra_args=extra,
        )
        return DeferredRefreshableCredentials(fetcher.fetch_credentials, self.METHOD)


def _take_body(
    *, response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_event: object
) -> None:
    if is_good_json(response_dict["status_code"], response_dict["headers"]):
        customized_response_dict[RAW_BODY] = response_dict["body"]
        response_dict["body"] = b"{}"


_lock = threading.Lock()
_clients: dict[tuple[int, KinesisClientSettings], "KinesisClient"] = {}

# A fork may happen while another thread holds the lock; the child starts with a free one and no clients.
if hasattr(os, "register_at_fork"):

    def _forget_in_child() -> None:
        global _lock  # noqa: PLW0603 - a lock cannot be reset, only replaced
        _lock = threading.Lock()
        _clients.clear()

    os.register_at_fork(after_in_child=_forget_in_child)
