"""What the user names on the command line as ``module:name``."""

import importlib
import sys
from pathlib import Path
from typing import Any

from kinesis_spout.cli.failures import WrongArguments


def find_in_module(name: str, *, wanted: str, example: str) -> Any:
    """Import ``module:name``; the working directory comes first, as with ``python -m``.

    Args:
        name: as given. After the colon it may have dots.
        wanted: what stands after the colon, for the error.
        example: of a whole argument, for the error.

    Raises:
        WrongArguments: it cannot be imported, or the module has none of that name.
    """
    module_name, colon, path = name.partition(":")
    if not (module_name and colon and path):
        raise WrongArguments(f"expected MODULE:{wanted}, as in {example}, got {name!r}")
    if module_name.endswith(".py"):
        raise WrongArguments(f"expected the name of a module, without .py, as in {example}, got {name!r}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # the user's module may raise anything, and a script may end
        raise WrongArguments(
            f"expected an importable module {module_name!r} (looked in {Path.cwd()} first), got "
            f"{type(error).__name__}: {error}; --debug shows where"
        ) from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise WrongArguments(
                f"expected {path!r} in the module {module_name!r} "
                f"({getattr(sys.modules[module_name], '__file__', None) or 'built in'}), found none"
            )
        found = getattr(found, part)
    return found
