"""Imports only when they are needed: names of packages, and the libraries of extras.

A MissingExtra that ends a program shows the program's line and the command to type, not our frames between them:
where it passes a public name they are cut off.
"""

import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from re import findall
from typing import Any, Final

from kinesis_spout.model.errors import MissingExtra

LEAST_PYSPARK: Final = (4, 0)
"""The first that takes a data source written in Python, with a sink and with streaming."""

_LEAST: Final = "PySpark {}.{} or newer".format(*LEAST_PYSPARK)


def missing_extra(what: str, extra: str, packages: Sequence[str]) -> MissingExtra:
    """Make the error that says which packages ``what`` needs, and which extra brings them."""
    return MissingExtra(
        f'{what}: expected {", ".join(packages)}, found none: pip install "kinesis-spout[{extra}]"'
    )


def check_extra(what: str, extra: str, packages: Sequence[str]) -> None:
    """Check that packages of an extra, given as they are imported, are installed; none is imported.

    Raises:
        MissingExtra: names those that are missing, and the extra.
    """
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise missing_extra(what, extra, missing)


def check_arrow(what: str) -> None:
    """Check that PyArrow and NumPy are installed.

    Raises:
        MissingExtra: they are not.
    """
    check_extra(what, "arrow", ("pyarrow", "numpy"))


def check_spark(what: str) -> None:
    """Check that PySpark, PyArrow and NumPy are installed; PySpark is imported only to learn its version.

    Raises:
        MissingExtra: one of them is missing, or PySpark is older than ``LEAST_PYSPARK``.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise MissingExtra(
            f'{what}: expected {_LEAST}, found none: pip install "kinesis-spout[spark]"; on EMR, Glue or '
            "Databricks use the platform's own Python, which has PySpark"
        )
    version = _pyspark_version()
    if tuple(map(int, findall(r"\d+", version)[:2])) < LEAST_PYSPARK:
        raise MissingExtra(
            f'{what}: expected {_LEAST}, got {version}: pip install "kinesis-spout[spark]"; on EMR, Glue or '
            "Databricks choose a release that has it"
        )
    check_arrow(what)


def _pyspark_version() -> str:
    """The version of the PySpark that is imported, or would be.

    On a platform that is often its own, on PYTHONPATH, in front of another that pip has installed.
    """
    from importlib import metadata  # noqa: PLC0415 - slow to import

    found = importlib.util.find_spec("pyspark")
    if "pyspark" not in sys.modules and found is not None:
        with suppress(metadata.PackageNotFoundError):  # a platform's own may not be installed by pip
            installed = metadata.distribution("pyspark")
            folders = found.submodule_search_locations or ()
            if str(installed.locate_file("pyspark")) in folders:
                return installed.version
    return str(import_module("pyspark").__version__)


def lazy_names(
    package: str, names: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the ``__getattr__`` and the ``__dir__`` of a package, given the names that each module has.

    They are loaded when they are first used: executors import a package with every handler. If several have a
    name, the last module counts.
    """
    modules = {name: module for module, of_module in names.items() for name in of_module}

    def load(name: str) -> Any:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(import_module(module), name)
        except MissingExtra as missing:
            raise missing.with_traceback(None) from None

    def listed() -> list[str]:
        return sorted({*vars(import_module(package)), *modules})

    return load, listed
