"""Which values can go to another process, or be kept: those that can be pickled here and unpickled there.

Many are packed at once. Only when that fails, one looks for those that are to blame.
"""

import pickle
from collections.abc import Callable, Sequence
from typing import Any

Dumps = Callable[[Any, int], bytes]
"""``pickle.dumps``, or ``cloudpickle.dumps``, which takes functions and classes of ``__main__`` too."""


def packed(values: Any, dumps: Dumps = pickle.dumps) -> bytes:
    """Pickle values that can be unpickled; or raise whatever their classes raise."""
    found = dumps(values, pickle.HIGHEST_PROTOCOL)
    try_unpickling(found)
    return found


def try_unpickling(pickled: bytes) -> None:
    """Unpickle values that may be objects of classes, to see whether one can; raises as ``packed``."""
    # It names a class; or some text has that byte, which costs a look in vain.
    if pickle.STACK_GLOBAL in pickled:
        pickle.loads(pickled)  # noqa: S301 - our own, made a moment ago


def why_not(value: Any, dumps: Dumps = pickle.dumps) -> Exception | None:
    """Say why a value cannot travel; None if it can."""
    try:
        packed(value, dumps)
    except Exception as error:  # noqa: BLE001 - that is what is asked
        return error
    return None


def why_unfit(
    stream: str, fields: Sequence[str], values: Sequence[Any], error: Exception, dumps: Dumps = pickle.dumps
) -> str:
    """Say of a tuple that cannot travel which of its fields is to blame; ``error`` is of its values together."""
    where, what = f"stream {stream!r}", type(values).__name__
    for field_name, value in zip(fields, values, strict=False):
        found = why_not(value, dumps)
        if found is not None:
            where, what, error = f"{where}, field {field_name!r}", type(value).__name__, found
            break
    return (
        f"{where}: expected a value that can be pickled and unpickled, because it goes to another process, got "
        f"{what} ({type(error).__name__}: {error})"
    )
