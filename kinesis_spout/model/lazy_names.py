"""Names of a package that are loaded when they are first used: executors import it with every handler."""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, names: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the ``__getattr__`` and the ``__dir__`` of a package, given the names that each module has.

    Of a name that several have, the last module counts.
    """
    modules = {name: module for module, of_module in names.items() for name in of_module}

    def load(name: str) -> Any:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(module), name)

    def listed() -> list[str]:
        return sorted({*vars(import_module(package)), *modules})

    return load, listed
