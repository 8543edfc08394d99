"""``python -m kinesis_spout.storm.multilang spout``: our spout, for a host of the multilang protocol to start.

The command line wins over the topology's configuration (``kinesis.spout.…``), that over the environment, that
over a file.
"""

import argparse
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.documentation import help_text
from kinesis_spout.settings.setting_messages import MissingSetting
from kinesis_spout.settings.sources import (
    Setting,
    from_environment,
    from_toml_file,
    from_topology,
    made_of,
    nearest,
    topology_key,
    variable,
)
from kinesis_spout.settings.table import SETTINGS
from kinesis_spout.storm.multilang.component import SERIALIZER_VARIABLE
from kinesis_spout.storm.multilang.frames import CODECS
from kinesis_spout.storm.multilang.kinesis_component import (
    FIELDS,
    DataForm,
    KinesisSpoutComponent,
    RecordValues,
)

_PREFIX: Final = "setting:"
_LEVELS: Final = ("debug", "info", "warning", "error")
_DESCRIPTION: Final = (
    "Read a Kinesis stream for a Storm topology, by the multilang protocol on standard input and output. Each "
    "setting may also stand in the topology's configuration, as kinesis.spout.NAME, or in the environment, as "
    "KINESIS_SPOUT_NAME."
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kinesis_spout.storm.multilang")
    components = parser.add_subparsers(required=True, metavar="COMPONENT")
    spout = components.add_parser("spout", help="read a Kinesis stream for a topology", allow_abbrev=False)
    add_options(spout)
    arguments, unknown = parser.parse_known_args()
    if unknown:
        spout.error(why_refused(unknown))
    return run(arguments)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.description = _DESCRIPTION
    parser.usage = f"{parser.prog} --stream NAME --app NAME --zookeeper HOST:PORT,... [option ...]"
    parser.add_argument(
        "--data",
        choices=[form.value for form in DataForm],
        default="text",
        help="how data travels: %(choices)s",
    )
    parser.add_argument(
        "--fields",
        metavar="NAME,...",
        default=",".join(FIELDS),
        help="the values of a tuple, in the order in which the topology declares them: %(default)s",
    )
    parser.add_argument(
        "--serializer", choices=[*CODECS], help=f"the host's; default: {SERIALIZER_VARIABLE}, or json"
    )
    parser.add_argument("--log-level", choices=_LEVELS, default="info", help="the least that the host logs")
    parser.add_argument("--config", type=Path, metavar="FILE", help="a TOML file with settings")
    settings = parser.add_argument_group("settings")
    for name, row in SETTINGS.items():
        settings.add_argument(
            _option(name), dest=_PREFIX + name, metavar="TEXT", help=help_text(row).replace("%", "%%")
        )


def why_refused(unknown: Sequence[str]) -> str:
    """The values of unknown arguments stay out: one can be a secret."""
    names = [text.partition("=")[0] for text in unknown if text.startswith("--")]
    if not names:
        return (
            "expected options with their values, got another argument: does a value with a space lack quotes?"
        )
    near = [_option(each) for each in nearest(names[0].replace("-", "_"))]
    return f"unknown option {names[0]}" + (f": did you mean {' or '.join(near)}?" if near else "")


def run(arguments: argparse.Namespace) -> int:
    try:
        component = KinesisSpoutComponent(
            configuring(arguments),
            RecordValues(fields=tuple(arguments.fields.split(",")), data=DataForm(arguments.data)),
            logging.getLevelNamesMapping()[arguments.log_level.upper()],
        )
        # A host that stops a component sends SIGTERM; what is finished must be stored all the same.
        signal.signal(signal.SIGTERM, lambda _signal, _frame: component.end_input())
        component.run(arguments.serializer)
    except KinesisSpoutError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def configuring(arguments: argparse.Namespace) -> Callable[[Mapping[str, Any]], SpoutConfig]:
    """A function that makes the settings from the topology's configuration; it raises ``InvalidConfig``."""
    said = {
        name.removeprefix(_PREFIX): Setting(text, _option(name.removeprefix(_PREFIX)), strict=False)
        for name, text in vars(arguments).items()
        if name.startswith(_PREFIX) and text is not None
    }

    def configure(conf: Mapping[str, Any]) -> SpoutConfig:
        in_file = {} if arguments.config is None else from_toml_file(arguments.config)
        try:
            return made_of(SpoutConfig, in_file | from_environment(os.environ) | from_topology(conf) | said)
        except MissingSetting as missing:
            name = missing.setting
            how = (
                f"give it as {_option(name)}, as {topology_key(name)} in the topology's configuration, or as "
            )
            raise MissingSetting(
                name, missing.allowed, f"{how}{variable(name)} in the environment"
            ) from missing

    return configure


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


if __name__ == "__main__":
    sys.exit(main())
