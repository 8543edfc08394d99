"""What messages and help tell the reader to type is taken by the real command line."""

import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer

import kinesis_spout
from kinesis_spout.cli.app import app
from kinesis_spout.cli.output import spelled
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.table import SETTINGS

PACKAGE: Final = Path(kinesis_spout.__file__).parent
EXTRAS: Final = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]
COMMAND_LINE: Final[Any] = typer.main.get_command(app)
PUT_IN: Final = "orders"
"""Stands for what the code puts into a text when it runs."""
ORDERS: Final[Any] = {"stream": "orders", "app": "billing"}
ENSEMBLE: Final[Any] = {
    "zookeeper": "zk:2181",
    "zookeeper_user": "me",
    "zookeeper_password": "hush",
    "zookeeper_tls": True,
}


def texts(*rooms: str) -> Iterator[str]:
    """Every text in the code of some rooms."""
    for path in sorted(path for room in rooms for path in (PACKAGE / room).rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        inside = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in nodes:
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else PUT_IN for part in node.values)
                yield "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
                yield node.value.replace("%s", PUT_IN)


def found(pattern: str, *rooms: str) -> list[str]:
    return sorted({each for text in texts(*rooms or (".",)) for each in re.findall(pattern, text)} - {PUT_IN})


QUOTED: Final = [" ".join(each.split()) for each in found("(?<!`)`(?!`)([^`]+)`(?!`)")]
COMMANDS: Final = [each.partition(" > ")[0] for each in QUOTED if re.match("kinesis-spout [a-z]", each)]


def named_with_options() -> Iterator[tuple[Any, str]]:
    """Commands that are named without the program, such as "run --until", for what they are."""
    for each in QUOTED:
        command, words = COMMAND_LINE, each.split()
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        if command is not COMMAND_LINE and words and words[0].startswith("--"):
            yield command, each


def options_of(command: Any) -> set[str]:
    own = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return own.union({"--help"}, *map(options_of, getattr(command, "commands", {}).values()))


def parse(*arguments: str) -> None:
    """Take arguments as the command line does, and execute nothing. Raises what it would print."""
    command, context, rest = COMMAND_LINE, None, list(arguments)
    while True:
        context = command.make_context(command.name, rest, parent=context)
        if not hasattr(command, "commands"):
            return
        _, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_taken_as_it_is_printed(command: str) -> None:
    parse(*shlex.split(command)[1:])


@pytest.mark.parametrize(("command", "name"), list(named_with_options()))
def test_a_command_that_is_named_with_an_option_has_it(command: Any, name: str) -> None:
    assert {word for word in name.split() if word.startswith("--")} <= options_of(command)


@pytest.mark.parametrize("option", found(rf"(?<![\w-])--(?!{PUT_IN})[a-z][a-z-]*", "cli", "operations"))
def test_an_option_that_is_named_exists(option: str) -> None:
    assert option in options_of(COMMAND_LINE)


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_setting_is_named_as_it_can_be_given(setting: str) -> None:
    option, *value = spelled(f"`{setting}`").strip("`").split()
    assert option in options_of(COMMAND_LINE)
    if option == "--set":
        parse("shards", option, *value)
        assert value == [f"{setting}=VALUE"]


@pytest.mark.parametrize("marked", found(r"`([a-z][a-z0-9_]*=[^`]+)`"))
def test_a_setting_that_is_named_with_its_value_is_taken_in_python_and_as_the_command_line_prints_it(
    marked: str,
) -> None:
    if marked.partition("=")[0] in SETTINGS:
        call = ast.parse(f"given({marked})", mode="eval").body
        assert isinstance(call, ast.Call)
        [keyword] = call.keywords
        needed = ENSEMBLE if marked.startswith("zookeeper_") else {}
        SpoutConfig.of(**{**ORDERS, **needed, str(keyword.arg): ast.literal_eval(keyword.value)})
        parse("run", "json:loads", *shlex.split(spelled(f"`{marked}`").strip("`")))


@pytest.mark.parametrize("extra", found(r"kinesis-spout\[([a-z0-9-]+)\]"))
def test_an_extra_that_is_named_exists(extra: str) -> None:
    assert extra in EXTRAS
