"""Reads settings from where they are set, and checks each by its row of the table.

Settings come from three places: keyword arguments over environment variables (such as
``KINESIS_SPOUT_RETRY_LIMIT=3``) over a TOML file. A spout in a Storm topology has a fourth, the topology's
configuration (``kinesis.spout.retry_limit: 3``), which overrides the environment. The text ``none`` stands
for None wherever None is allowed, because TOML and the environment have no None.
"""

import difflib
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.settings.option import Option
from kinesis_spout.settings.setting_messages import MissingSetting, NotAllowed, refused_as
from kinesis_spout.settings.table import SETTINGS

T = TypeVar("T")

ENVIRONMENT_PREFIX: Final = "KINESIS_SPOUT_"
TOPOLOGY_PREFIX: Final = "kinesis.spout."
TOML_TABLE: Final = "kinesis_spout"

_PURE_PYTHON: Final = f"{ENVIRONMENT_PREFIX}PURE_PYTHON"
"""Turns the native module off; ``kinesis.native`` asks for it."""
_SERVICE_LINK: Final = re.compile(
    rf"{ENVIRONMENT_PREFIX}(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?"
    r"|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
"""Variables that Kubernetes sets in containers that run with a Service named kinesis-spout; never a setting.

https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
"""


class Setting(NamedTuple):
    value: Any
    called: str
    """Its name in messages, with the place where it was set, if that is not a keyword argument."""
    strict: bool = True
    """Refuse text in place of a number; the environment and the command line have nothing but text."""


def from_keywords(settings: Mapping[str, Any], rows: Mapping[str, Option] = SETTINGS) -> dict[str, Setting]:
    """Take keyword arguments; each must be a setting, one of ``rows``."""
    _refuse_unknown(settings, "keyword argument", rows=rows)
    return {name: Setting(value, name) for name, value in settings.items()}


def from_environment(environ: Mapping[str, str]) -> dict[str, Setting]:
    """Take our variables; each must be a setting, unless Kubernetes set it for a Service of our name.

    The one that turns the native module off is none either: it is of the process, whatever that consumes.
    """
    variables = {
        name: value
        for name, value in environ.items()
        if name.startswith(ENVIRONMENT_PREFIX) and name != _PURE_PYTHON and not _SERVICE_LINK.fullmatch(name)
    }
    return _from_text(variables, "environment variable", variable)


def from_topology(conf: Mapping[str, Any]) -> dict[str, Setting]:
    """Take the keys ``kinesis.spout.…`` of a Storm topology's configuration; each must be a setting."""
    keys = {key: value for key, value in conf.items() if key.startswith(TOPOLOGY_PREFIX)}
    return _from_text(keys, "key of the topology's configuration", topology_key)


def _from_text(given: Mapping[str, Any], what: str, spelled: Callable[[str], str]) -> dict[str, Setting]:
    _refuse_unknown(given, what, spelled=spelled)
    known = {spelled(name): name for name in SETTINGS}
    return {
        known[key]: Setting(value, f"{known[key]} (from {key})", strict=False) for key, value in given.items()
    }


def from_toml_file(path: Path) -> dict[str, Setting]:
    """Take the file's table ``[kinesis_spout]``, or the whole file if it has none. Raises InvalidConfig."""
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
    _refuse_unknown(table, "key", where=f" in {str(path)!r}")
    return {name: Setting(value, f"{name} (from {path})") for name, value in table.items()}


def variable(name: str) -> str:
    return ENVIRONMENT_PREFIX + name.upper()


def topology_key(name: str) -> str:
    return TOPOLOGY_PREFIX + name


def checked(settings: Mapping[str, Setting], rows: Mapping[str, Option] = SETTINGS) -> dict[str, Any]:
    """Return every setting of ``rows``, converted by its type, or its default. Raises InvalidConfig."""
    return {name: _checked(option, settings.get(name)) for name, option in rows.items()}


def made_of(
    configuration: Callable[..., T], settings: Mapping[str, Setting], rows: Mapping[str, Option] = SETTINGS
) -> T:
    """Make a configuration. Raises InvalidConfig, which says where the refused setting was set."""
    values = checked(settings, rows)
    try:
        return configuration(**values)
    except InvalidConfig as error:
        called = {name: setting.called for name, setting in settings.items()}
        raise InvalidConfig(refused_as(str(error), called.get)) from None


def _checked(option: Option, setting: Setting | None) -> Any:
    if setting is None:
        if option.is_required:
            how = f"set it as a keyword argument, as {variable(option.setting)}, or in a TOML file"
            raise MissingSetting(option.setting, option.allowed, how)
        return option.default
    value = setting.value
    if option.allows_none and (value is None or (isinstance(value, str) and value.lower() == "none")):
        return None
    called, allowed = setting.called, option.allowed
    if not setting.strict and option.type.has_units:
        allowed += f", or {option.type.text_words}"
    try:
        return option.type.of(value, strict=setting.strict)
    except NotAllowed as error:
        raise error.refusal(called, allowed, value, secret=option.secret) from None
    except InvalidConfig as error:
        raise InvalidConfig(f"{called}: {error}") from None


def nearest(written: str) -> list[str]:
    """Return the settings that an unknown name may mean: spelled alike, or with that word in them."""
    name = written.strip("_").lower().removeprefix(ENVIRONMENT_PREFIX.lower()).removeprefix(TOPOLOGY_PREFIX)
    near = difflib.get_close_matches(name, SETTINGS)
    return near[:1] if name in near else near or [known for known in SETTINGS if name in known.split("_")]


def _refuse_unknown(
    given: Mapping[str, Any],
    what: str,
    spelled: Callable[[str], str] = str,
    where: str = "",
    rows: Mapping[str, Option] = SETTINGS,
) -> None:
    # The value stays out of the message: an unknown key may be a misspelt secret.
    allowed = [spelled(name) for name in rows]
    for name in given:
        if name not in allowed:
            near = " or ".join(spelled(each) for each in nearest(name) if each in rows)
            those = "those that `kinesis-spout options` lists" if rows is SETTINGS else ", ".join(allowed)
            advice = f"did you mean {near}?" if near else f"expected one of {those}"
            raise InvalidConfig(f"unknown {what} {name!r}{where}: {advice}")
