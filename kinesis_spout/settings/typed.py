"""The settings as fields of the configurations and as typed keyword arguments, made of the table.

Type checkers read ``typed.pyi`` instead; ``python -m tests.unit.settings.test_typed`` writes it from the table.
"""

from collections.abc import Iterable
from typing import Any, TypedDict

import msgspec

from kinesis_spout.settings.option import Option
from kinesis_spout.settings.table import SETTINGS
from kinesis_spout.settings.table.connection import CLIENT, PLACE
from kinesis_spout.settings.table.writing import PRODUCER_SETTINGS


def _types(rows: Iterable[Option]) -> dict[str, Any]:
    return {
        row.setting: row.type.annotation | None if row.allows_none else row.type.annotation for row in rows
    }


def _fields(name: str, rows: Iterable[Option], default: Any = msgspec.NODEFAULT) -> type[msgspec.Struct]:
    fields = [(field, kind, default) for field, kind in _types(rows).items()]
    return msgspec.defstruct(name, fields, frozen=True, kw_only=True, module=__name__)


SpoutFields = _fields("SpoutFields", SETTINGS.values(), msgspec.UNSET)  # the class says what is missing
ProducerFields = _fields("ProducerFields", PRODUCER_SETTINGS.values())

ZooKeeperKeywords = TypedDict("ZooKeeperKeywords", _types(PLACE.values()), total=False)
KinesisKeywords = TypedDict("KinesisKeywords", _types(row for row in CLIENT if row.is_setting), total=False)
SpoutSettings = TypedDict("SpoutSettings", _types(SETTINGS.values()), total=False)
ProducerSettings = TypedDict("ProducerSettings", _types(PRODUCER_SETTINGS.values()), total=False)
