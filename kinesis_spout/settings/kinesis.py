"""Turns options into what the adapter to Kinesis takes: its connection, and its reads. Imports boto3."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from kinesis_spout.kinesis import KinesisClientSettings, ReadSettings


def client_settings(
    values: Mapping[str, Any], region: str | None, *, connections: int = 0
) -> KinesisClientSettings:
    """Make the settings of a client that keeps at least so many ``connections``; can be sent to executors."""
    most = max(KinesisClientSettings().max_connections, connections)
    named = _named(KinesisClientSettings, values) | {"region": region}
    return KinesisClientSettings(**named, max_connections=most)


def read_settings(values: Mapping[str, Any], **more: Any) -> ReadSettings:
    """Make the settings of reads; can be sent to executors. ``more`` has what no setting says alone."""
    return ReadSettings(**_named(ReadSettings, values) | more)


def _named(kind: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the fields that are settings; None means the field's default."""
    return {field.name: values[field.name] for field in fields(kind) if values.get(field.name) is not None}
