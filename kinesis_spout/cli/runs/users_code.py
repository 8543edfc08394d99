"""Finds a user's handler or topology, named on the command line as ``module:name``."""

import importlib
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kinesis_spout.cli.failures import BrokenTopology
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.operations.errors import WrongArguments

if TYPE_CHECKING:
    from kinesis_spout.storm import Topology

Named = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:BUILDER",
        help="A TopologyBuilder, a Topology, or a function without arguments that returns one; the working "
        "directory is searched first for MODULE.",
        show_default=False,
    ),
]


def find_in_module(name: str, *, wanted: str, example: str) -> Any:
    """Import ``module:name``; the working directory comes first, as with ``python -m``. The name can have dots.

    Errors say what is ``wanted`` there, and give an ``example`` of the whole.
    """
    module_name, colon, path = name.partition(":")
    if not (module_name and colon and path):
        raise WrongArguments(f"expected MODULE:{wanted}, as in {example}, got {name!r}")
    if module_name.endswith(".py"):
        raise WrongArguments(f"expected the name of a module, without .py, as in {example}, got {name!r}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # the user's module can raise anything, and a script can end
        raise WrongArguments(
            f"expected an importable module {module_name!r} (looked in {Path.cwd()} first), got "
            f"{type(error).__name__}: {error}; `kinesis-spout --debug …` shows where"
        ) from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise WrongArguments(
                f"expected {path!r} in the module {module_name!r} "
                f"({getattr(sys.modules[module_name], '__file__', None) or 'built in'}), found none"
            )
        found = getattr(found, part)
    return found


def find_topology(name: str) -> "Topology":
    """Import ``module:builder`` and build the topology. One from a builder is named after its module."""
    from kinesis_spout.storm import Topology, TopologyBuilder  # noqa: PLC0415 - PySpark is slow to import

    found = find_in_module(name, wanted="BUILDER", example="my_module:builder")
    if not isinstance(found, (Topology, TopologyBuilder)):
        found = _called(name, found)
    if isinstance(found, TopologyBuilder):
        with _broken(name):
            found = found.build(name.partition(":")[0].rpartition(".")[2])
    if not isinstance(found, Topology):
        got = "None: it returns nothing" if found is None else type(found).__name__
        raise WrongArguments(
            f"expected the function {name} to return a TopologyBuilder or a Topology, got {got}"
        )
    return found


def _called(name: str, function: Any) -> Any:
    if not callable(function):
        raise WrongArguments(
            f"expected {name} to be a TopologyBuilder, a Topology, or a function that gives one, got "
            f"{type(function).__name__}"
        )
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError) as error:
        raise WrongArguments(
            f"expected a function that is called without arguments, got {name}: {error}"
        ) from error
    with _broken(name):
        return function()


@contextmanager
def _broken(name: str) -> Iterator[None]:
    try:
        yield
    except InvalidConfig as error:
        raise BrokenTopology(f"{name}: {error}") from error
    except (Exception, SystemExit) as error:  # the user's code can raise anything
        said = ", ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
        raise BrokenTopology(
            f"{name}: expected a topology, got {said}; `kinesis-spout --debug …` shows where"
        ) from error
