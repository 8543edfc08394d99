"""Reads settings from where they are set, and makes a configuration of them that is checked against its types.

Settings come from three places: keyword arguments over environment variables (such as
``KINESIS_SPOUT_RETRY_LIMIT=3``) over a TOML file. Each setting is checked by itself, against the type written
next to it. The text ``none`` stands for None wherever None is allowed, because TOML and the environment have
no None of their own.
"""

import difflib
import re
import tomllib
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from kinesis_spout.config.annotations import allowed_text, is_optional
from kinesis_spout.config.refusals import MissingSetting, shown
from kinesis_spout.errors import InvalidConfig

ENVIRONMENT_PREFIX: Final = "KINESIS_SPOUT_"
TOML_TABLE: Final = "kinesis_spout"

_SERVICE_LINK: Final = re.compile(
    rf"{ENVIRONMENT_PREFIX}(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?"
    r"|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
"""What Kubernetes sets in every container beside a Service named kinesis-spout; none of it can be a setting.

https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
"""

Settings = TypeVar("Settings", bound=msgspec.Struct)


class Setting(NamedTuple):
    """A value as it was given."""

    value: Any
    source: str
    """How a message calls the place it came from; empty for a keyword argument."""
    strict: bool = True
    """Whether text must not be read as a number; the environment has nothing but text."""


def from_keywords(kind: type[msgspec.Struct], settings: Mapping[str, Any]) -> dict[str, Setting]:
    """Take keyword arguments; each must be a setting."""
    _refuse_unknown(kind, settings, "keyword argument")
    return {name: Setting(value, "") for name, value in settings.items()}


def from_environment(kind: type[msgspec.Struct], environ: Mapping[str, str]) -> dict[str, Setting]:
    """Take the variables of ours; each must be a setting, unless Kubernetes set it for a Service of our name."""
    variables = {
        name: value
        for name, value in environ.items()
        if name.startswith(ENVIRONMENT_PREFIX) and not _SERVICE_LINK.fullmatch(name)
    }
    _refuse_unknown(kind, variables, "environment variable", spelled=variable)
    known = {variable(name): name for name in kind.__struct_fields__}
    return {known[name]: Setting(value, name, strict=False) for name, value in variables.items()}


def from_toml_file(kind: type[msgspec.Struct], path: Path) -> dict[str, Setting]:
    """Take the file's table ``[kinesis_spout]``, or the whole file if it has none.

    Raises:
        InvalidConfig: there is no such file, or it is not TOML, or has a key that is no setting.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidConfig(
            f"expected a readable TOML file at {str(path)!r}, got {error.strerror}: correct the path"
        ) from error
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError
        raise InvalidConfig(f"expected TOML in {str(path)!r}, got something else: {error}") from error
    table = document.get(TOML_TABLE, document)
    if not isinstance(table, dict):
        raise InvalidConfig(
            f"expected a table [{TOML_TABLE}] in {str(path)!r}, got one {type(table).__name__} of that name"
        )
    _refuse_unknown(kind, table, f"key in {str(path)!r}")
    return {name: Setting(value, str(path)) for name, value in table.items()}


def variable(name: str) -> str:
    """Give the environment variable of a setting."""
    return ENVIRONMENT_PREFIX + name.upper()


def _refuse_unknown(
    kind: type[msgspec.Struct], given: Mapping[str, Any], what: str, spelled: Callable[[str], str] = str
) -> None:
    # The value stays out of the message: an unknown key may be a misspelt secret.
    allowed = [spelled(name) for name in kind.__struct_fields__]
    for name in given:
        if name not in allowed:
            near = difflib.get_close_matches(name, allowed)
            advice = f"did you mean {' or '.join(near)}?" if near else f"expected one of {', '.join(allowed)}"
            raise InvalidConfig(f"unknown {what} {name!r}: {advice}")


def build(kind: type[Settings], settings: Mapping[str, Setting]) -> Settings:
    """Make the configuration, each value converted to the type of its setting.

    Raises:
        InvalidConfig: names the setting, where it was set, and what is allowed.
    """
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        setting = settings.get(field.name)
        if setting is None:
            if field.required:
                raise MissingSetting(
                    field.name,
                    allowed_text(field.type),
                    f"set it as a keyword argument, as {variable(field.name)}, or in a TOML file",
                )
            continue
        try:
            values[field.name] = msgspec.convert(
                _plain(field, setting.value), field.type, strict=setting.strict
            )
        except msgspec.ValidationError as error:
            origin = f" (from {setting.source})" if setting.source else ""
            raise InvalidConfig(
                f"{field.name}{origin}: expected {allowed_text(field.type)}, "
                f"got {shown(field.name, setting.value)}"
            ) from error
    return kind(**values)


def _plain(field: msgspec.structs.FieldInfo, value: Any) -> Any:
    """Turn the natural ways of writing a value (``none``, a date, a number of seconds) into the typed one."""
    if isinstance(value, str) and value.lower() == "none" and is_optional(field.type):
        return None
    if field.name == "initial_position" and not isinstance(value, bool):
        if isinstance(value, datetime):
            return value.isoformat()
        if isinstance(value, (int, float)):
            return repr(value)
    return value
