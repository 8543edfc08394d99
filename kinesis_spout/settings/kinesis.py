"""From options to what the adapter to Kinesis takes: how it is reached, and how it is read. Imports boto3."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from kinesis_spout.kinesis import KinesisClientSettings, ReadSettings


def read_settings(values: Mapping[str, Any], **derived: Any) -> ReadSettings:
    """Say how shards are read; can be sent to executors.

    Args:
        values: by the names of settings, checked.
        derived: what no setting says alone.
    """
    named = {field.name: values[field.name] for field in fields(ReadSettings) if field.name in values}
    return ReadSettings(**named | derived)


def client_settings(
    values: Mapping[str, Any], region: str | None, *, connections: int = 0
) -> KinesisClientSettings:
    """Say how Kinesis is reached; can be sent to executors.

    Args:
        values: by the names of settings, checked.
        region: see ``rules.region``.
        connections: how many are kept at least.
    """
    usual = KinesisClientSettings()
    return KinesisClientSettings(
        region=region,
        endpoint_url=values["endpoint_url"],
        access_key=values["aws_access_key_id"],
        secret_key=values["aws_secret_access_key"],
        session_token=values["aws_session_token"],
        profile=values["aws_profile"],
        role_arn=values["role_arn"],
        role_session_name=values["role_session_name"] or usual.role_session_name,
        role_external_id=values["role_external_id"],
        sts_endpoint_url=values["sts_endpoint"],
        ca_bundle=values["ca_bundle"],
        proxy_url=values["proxy_url"],
        max_connections=max(usual.max_connections, connections),
    )
