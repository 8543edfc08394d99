"""The public surface of this release, as one Python stub that people and griffe read.

``python -m tests.public_surface`` writes it to ``tests/golden/public_surface.txt``: at each release, and when a
change that breaks somebody's program is made on purpose. ``tests/unit/test_public_surface.py`` compares the code
with it.

What VERSIONING.md calls public is here: the Python names that ``docs/reference/api.md`` shows, with their
parameters; the settings, the options of ``format("kinesis")``, the commands with their options and exit codes, the
metrics with their labels, and the levels of the stored forms. A name with dots becomes one with underscores.
"""

import re
from collections.abc import Iterable, Iterator
from keyword import iskeyword
from pathlib import Path
from typing import Any, Final

import griffe
import typer.main
import yaml

from kinesis_spout.cli.app import app
from kinesis_spout.monitoring.metrics import CONSUMER, MONITORING, PRODUCER, QUERIES, SHARDS, TOPOLOGY, Metric
from kinesis_spout.settings.option import Use
from kinesis_spout.settings.table import OPTIONS, SETTINGS
from shard_state import form_level

REPOSITORY: Final = Path(__file__).parents[1]
STORED: Final = REPOSITORY / "tests" / "golden" / "public_surface.txt"

_ENTRY: Final = re.compile(r"^::: (?P<path>[\w.]+)\n(?P<options>(?:    .*\n)*)", re.MULTILINE)
_MADE: Final = frozenset({"__init__", "__call__"})
"""Of the names with underscores, those that a user's program calls with arguments."""
_METRICS: Final = (*CONSUMER, *SHARDS, *QUERIES, *PRODUCER, *TOPOLOGY, *MONITORING)
_STARS: Final = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}


def written() -> str:
    """Return the stub of the code as it is now."""
    names = dict(_documented())
    surface: list[tuple[str, list[str]]] = [
        *((path, _lines(found)) for path, found in sorted(names.items())),
        ("settings", [f"{name} = {option.default!r}" for name, option in sorted(SETTINGS.items())]),
        *(
            (
                f"spark_{use.name.lower()}_options",
                sorted(f"{option.name}: ..." for option in OPTIONS if use in option.uses),
            )
            for use in Use
        ),
        ("command_line", sorted(_commands(typer.main.get_command(app), "kinesis_spout"))),
        ("exit_codes", [f"code_{code}: ..." for code in _exit_codes()]),
        ("metrics", sorted(map(_metric, _METRICS))),
        ("form_levels", [f"reads = {form_level.READS}", f"writes = {form_level.WRITES}"]),
    ]
    blocks = [
        "\n".join((f"class {_name(path)}:", *(f"    {line}" for line in lines or ["..."])))
        for path, lines in surface
    ]
    return "\n\n".join(blocks) + "\n"


def breaking(stored: Path, now: Path) -> list[str]:
    """Say of each change from one stub to another that breaks a program what it is, one sentence each."""
    before, after = (_module(path) for path in (stored, now))
    return sorted(_sentence(breakage) for breakage in griffe.find_breaking_changes(before, after))


def levels(stub: Path) -> dict[str, int]:
    """Return the levels of the stored forms that a stub names: ``reads`` and ``writes``."""
    found = _module(stub)["form_levels"].members
    return {name: int(str(member.value)) for name, member in found.items()}


def _module(stub: Path) -> griffe.Module:
    return griffe.visit("surface", stub, stub.read_text())


def _sentence(breakage: griffe.Breakage) -> str:
    told = breakage.as_dict()
    path = breakage.obj.path.removeprefix("surface.")
    return f"{path}: {breakage.kind.value}: {told['old_value']} -> {told['new_value']}"


def _documented() -> Iterator[tuple[str, list[griffe.Object | griffe.Alias]]]:
    """Give the names that the pages of the Python API show: each entry with what they show of it."""
    package = griffe.load("kinesis_spout", search_paths=[str(REPOSITORY)])
    pages = sorted((REPOSITORY / "docs" / "reference" / "api").glob("*.md"))
    for entry in _ENTRY.finditer("\n".join(page.read_text() for page in pages)):
        path = entry["path"]
        found = package[path.removeprefix("kinesis_spout.")]
        options = (yaml.safe_load(entry["options"]) or {}).get("options", {})
        chosen = options.get("members")
        hidden = [rule.removeprefix("!") for rule in options.get("filters", ())]
        if not found.is_module:
            shown = _members(found, chosen)
            yield path, [each for each in shown if each.name in _MADE or not _matches(each.name, hidden)]
            continue
        for name in chosen or sorted(found.exports):
            member = found[name]
            yield f"{path}.{name}", _members(member) if member.is_class else [member]


def _matches(name: str, rules: Iterable[str]) -> bool:
    return any(re.search(rule, name) for rule in rules)


def _members(found: Any, chosen: Iterable[str] | None = None) -> list[Any]:
    if not found.is_class:
        return [found]
    names = (
        {name for name in found.all_members if not name.startswith("_")} if chosen is None else set(chosen)
    )
    return [member for name, member in sorted(found.all_members.items()) if name in names | _MADE]


def _lines(found: list[Any]) -> list[str]:
    return [
        f"def {each.name}({', '.join(_parameters(each))}): ..." if each.is_function else f"{each.name}: ..."
        for each in found
    ]


def _parameters(function: Any) -> Iterator[str]:
    had_star = False
    for each in function.parameters:
        if each.kind is griffe.ParameterKind.keyword_only and not had_star:
            had_star = True
            yield "*"
        had_star = had_star or each.kind is griffe.ParameterKind.var_positional
        default = each.kind not in _STARS and each.default is not None
        yield f"{_STARS.get(each.kind, '')}{each.name}{f' = {each.default}' if default else ''}"


def _commands(command: Any, path: str) -> Iterator[str]:
    below = getattr(command, "commands", None)
    if below is not None:
        for name, each in below.items():
            yield from _commands(each, f"{path} {name}")
        return
    names = [_parameter(each) for each in command.params]
    yield f"def {_name(path)}({', '.join(['*', *sorted(names)])}): ..."


def _parameter(parameter: Any) -> str:
    """A command's option by its longest spelling, its argument by its name; a required one has no default."""
    spelled = (
        max(parameter.opts, key=len).lstrip("-") if parameter.param_type_name == "option" else parameter.name
    )
    return f"{_name(spelled)}{'' if parameter.required else ' = ...'}"


def _exit_codes() -> list[str]:
    return re.findall(r"[:,] (\d+) ", str(app.info.epilog))


def _metric(metric: Metric) -> str:
    return (
        f"def {metric.exposed_name}({', '.join(['*', *(f'{label} = ...' for label in metric.labels)])}): ..."
    )


def _name(path: str) -> str:
    name = re.sub(r"\W", "_", path)
    return f"{name}_" if iskeyword(name) else name


if __name__ == "__main__":
    STORED.write_text(written())
