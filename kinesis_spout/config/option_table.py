"""Every setting as a row: the option tables of the README and of the command line come from here."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from kinesis_spout.config.annotations import allowed_text, description, number_text
from kinesis_spout.config.settings import SpoutConfig
from kinesis_spout.config.value_types import MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One setting, as a row of an option table."""

    name: str
    type_text: str
    """What is allowed: "int >= 0, or none"."""
    default: str
    """The default as text: "required" where there is none, and "none" for None."""
    doc: str


def options() -> Iterator[Option]:
    """Describe every setting, in the order in which `SpoutConfig` declares them."""
    for field in msgspec.structs.fields(SpoutConfig):
        default = "required" if field.required else _default_text(field.name, field.default)
        yield Option(
            name=field.name,
            type_text=allowed_text(field.type),
            default=default,
            doc=description(field.type),
        )


def _default_text(name: str, default: Any) -> str:
    if default is None:
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default // MIB} MiB" if "_bytes" in name else number_text(default)
