"""From options to what the adapter to Kinesis takes: how it is reached, and how it is read. Imports boto3."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from kinesis_spout.kinesis import KinesisClientSettings, ReadSettings


def client_settings(
    values: Mapping[str, Any], region: str | None, *, connections: int = 0
) -> KinesisClientSettings:
    """Say how Kinesis is reached; can be sent to executors.

    Args:
        values: by the names of settings, checked.
        region: see ``rules.region``.
        connections: how many are kept at least.
    """
    most = max(KinesisClientSettings().max_connections, connections)
    named = _named(KinesisClientSettings, values) | {"region": region}
    return KinesisClientSettings(**named, max_connections=most)


def read_settings(values: Mapping[str, Any], **more: Any) -> ReadSettings:
    """Say how shards are read; can be sent to executors. What no setting says alone is among ``more``."""
    return ReadSettings(**_named(ReadSettings, values) | more)


def _named(kind: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Give the values of the fields that are settings; what is None has the field's default."""
    return {field.name: values[field.name] for field in fields(kind) if values.get(field.name) is not None}
