"""The settings of a connection to Kinesis, which can be pickled, and this process's clients for them.

boto3 is loaded when the first client is made: Spark plans a query in several processes that make none.
"""

import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import boto3
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
    """In the shared configuration: its credentials (keys, a role, SSO, a process), region and endpoints."""
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
    """For every service that is called. None, here and below: as the environment and the profile say."""
    use_dualstack_endpoint: bool | None = None
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
        from kinesis_spout.kinesis.client import made_client  # noqa: PLC0415 - imports boto3

        return made_client(self)

    def session(self) -> "boto3.Session":
        """Return a session with the region and the credentials, those of the assumed role if one is named.

        Its clients of other services use the same proxy and CA bundle.

        Raises:
            InvalidConfig: the CA bundle is no PEM file.
            botocore.exceptions.BotoCoreError: a profile does not exist, or cannot be read.
        """
        from kinesis_spout.kinesis.client import sessions_of  # noqa: PLC0415 - imports boto3

        return sessions_of(self)[0]


_lock = threading.Lock()
_clients: dict[tuple[int, KinesisClientSettings], "KinesisClient"] = {}

# Another thread may hold the lock at a fork; the child starts with a free one and no clients.
if hasattr(os, "register_at_fork"):

    def _forget_in_child() -> None:
        global _lock  # noqa: PLW0603 - a lock cannot be reset, only replaced
        _lock = threading.Lock()
        _clients.clear()

    os.register_at_fork(after_in_child=_forget_in_child)
