"""The options that commands share, declared once: above all those of a ``SpoutConfig``.

A command has the parameter ``config: SpoutConfig`` and the decorator ``configured``. Its users then have an
option for each of the usual settings, ``--set NAME=VALUE`` for any, ``--config`` for a file, and the
environment.
"""

import functools
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from kinesis_spout.cli.failures import ActionRefused
from kinesis_spout.cli.output import note, spelled
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.operations.errors import WrongArguments
from kinesis_spout.operations.world import UNNAMED, World, configs_of
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.documentation import help_text
from kinesis_spout.settings.option import Option
from kinesis_spout.settings.setting_messages import MissingSetting
from kinesis_spout.settings.sources import (
    Setting,
    from_environment,
    from_toml_file,
    made_of,
    nearest,
    variable,
)
from kinesis_spout.settings.table import SETTINGS

USUAL: Final = ("stream", "app", "zookeeper", "region", "endpoint_url")
"""The settings that every such command has an option for."""

STREAM_ONLY: Final = ("stream", "region", "endpoint_url")
"""The same for commands that look at a stream alone: they need no application's name."""

_PANEL: Final = "Settings (also as KINESIS_SPOUT_..., or in a file)"

_File = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="A TOML file with settings.", rich_help_panel=_PANEL),
]
_Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any setting, repeatable; `kinesis-spout options` lists them.",
        rich_help_panel=_PANEL,
    ),
]

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]


class Streams(Enum):
    ONE = auto()
    """It refuses them."""
    EACH = auto()
    """It is called for each."""
    ALL = auto()
    """It is called with all."""


def configured(
    *more: str,
    usual: Sequence[str] = USUAL,
    streams: Streams = Streams.ONE,
    optional: Sequence[str] = (),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command's ``config`` parameter as options: the usual settings, and ``more``.

    If ``usual`` has no ``app``, the application need not be given, and neither need what ``optional`` names:
    its value is ``UNNAMED``. ``streams`` says what several
    streams mean to the command; one that is called for each has its context as ``ctx``.
    """
    names = (*usual, *more)
    left_out = optional if "app" in names else ("app", *optional)
    added = [_parameter(name, Annotated[str | None, _option(SETTINGS[name])]) for name in names] + [
        _parameter("config_file", _File),
        _parameter("assignments", _Assignments),
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command)
        own = [parameter for parameter in signature.parameters.values() if parameter.name != "config"]

        @functools.wraps(command)
        def with_options(**given: Any) -> None:
            settings = {name: given.pop(name) for name in names}
            file, assignments = given.pop("config_file"), given.pop("assignments")
            config = _load(file, settings, assignments or (), left_out)
            if streams is Streams.EACH:
                _for_each(given["ctx"].obj, config, lambda each: command(config=each, **given))
                return
            if streams is Streams.ONE and config.is_several:
                raise WrongArguments(f"stream: expected one stream with this command, got {config.stream!r}")
            command(config=config, **given)

        parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*own, *added)]
        with_options.__dict__["__signature__"] = signature.replace(parameters=parameters)
        with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return with_options

    return decorate


def _for_each(world: World, config: SpoutConfig, command: Callable[[SpoutConfig], None]) -> None:
    code = 0
    configs = configs_of(world, config)
    for each in configs:
        if len(configs) > 1:
            note(f"stream {each.stream}:")
        try:
            command(each)
        except typer.Exit as left:
            code = code or left.exit_code
    if code:
        raise typer.Exit(code)


def load(file: Path | None, given: Mapping[str, str | None], assignments: Sequence[str]) -> SpoutConfig:
    """Make the configuration: options over ``--set`` over the environment over the file."""
    said = {
        name: Setting(text, f"--set {name}", strict=False)
        for name, text in (_assigned(assignment) for assignment in assignments)
    } | {name: Setting(text, name, strict=False) for name, text in given.items() if text is not None}
    try:
        in_file = {} if file is None else from_toml_file(file)
        return made_of(SpoutConfig, in_file | from_environment(os.environ) | said)
    except MissingSetting as missing:
        name = missing.setting
        raise MissingSetting(
            name,
            missing.allowed,
            f"give it as --{name.replace('_', '-')}, as {variable(name)} in the environment, or in a file "
            "(--config)",
        ) from missing


def _load(
    file: Path | None, given: Mapping[str, str | None], assignments: Sequence[str], optional: Sequence[str]
) -> SpoutConfig:
    try:
        return load(file, given, assignments)
    except MissingSetting as missing:
        name = missing.setting
        if name not in optional or given.get(name) is not None:
            raise
        return _load(file, {**given, name: UNNAMED}, assignments, optional)


def _option(setting: Option) -> Any:
    words = ["true", "false"] if setting.schema.get("type") == "boolean" else setting.schema.get("enum", [])
    return typer.Option(
        f"--{setting.setting.replace('_', '-')}",
        metavar="TEXT",
        help=spelled(help_text(setting)),
        show_default=False,
        autocompletion=lambda incomplete: [word for word in words if word.startswith(incomplete)],
        rich_help_panel=_PANEL,
    )


def _parameter(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _assigned(assignment: str) -> tuple[str, str]:
    name, equals, text = assignment.partition("=")
    name = name.strip().replace("-", "_")
    if name not in SETTINGS:
        near = nearest(name)
        advice = f": did you mean {' or '.join(near)}?" if near else ""
        raise InvalidConfig(f"--set: unknown setting {name!r}{advice}")
    if not equals:
        raise InvalidConfig(f"--set: expected {name}=VALUE, got no value")
    return name, text


def confirm(action: str, *, yes: bool) -> None:
    """Ask before what cannot be taken back, unless ``yes``; end the command if the answer is no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ActionRefused(
            f"cannot ask for confirmation, because standard input is not a terminal: to {action}, add --yes"
        )
    if not typer.confirm(f"{action}?", err=True):
        note("nothing was changed")
        raise typer.Exit(1)
