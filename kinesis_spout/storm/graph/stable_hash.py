"""A hash of a tuple's key that is the same in every process and at every start.

Python's own hash of text differs from process to process, and a key's task must not: its state is there.
"""

from typing import Any
from zlib import crc32

import numpy as np

from kinesis_spout.model.errors import InvalidConfig


def stable_hash(key: tuple[Any, ...]) -> int:
    """Give a number from 0 to 2**32 - 1 that depends on the values and their types only.

    Numbers that are equal have the same hash (``1``, ``1.0``, ``True``, ``numpy.int64(1)``), as Python's
    dictionaries have it.

    Raises:
        InvalidConfig: a value is of another kind than str, bytes, int, float, None, numpy's of these, and tuples.
    """
    value = 0
    for part in key:
        value = crc32(_bytes_of(part), value)
    return value


def _bytes_of(part: Any) -> bytes:
    if isinstance(part, str):
        return b"s" + part.encode("utf-8", "surrogatepass")
    if isinstance(part, (bytes, bytearray)):
        return b"b" + part
    if part is None:
        return b"n"
    if isinstance(part, (int, float)):
        return _of_number(part)
    if isinstance(part, tuple):
        return b"t" + b"".join(len(each).to_bytes(4, "big") + each for each in map(_bytes_of, part))
    return _bytes_of(_of_numpy(part))


def _of_number(part: float) -> bytes:
    if isinstance(part, int) or part.is_integer():
        return b"i" + str(int(part)).encode()
    return b"f" + part.hex().encode()


def _of_numpy(part: Any) -> Any:
    """Give a number of numpy as Python has it."""
    plain = part.item() if isinstance(part, np.generic) else part
    if isinstance(plain, (bool, int, float)) and plain is not part:
        return plain
    raise InvalidConfig(
        f"expected to group by str, bytes, int, float, None, or tuples of these, got {type(part).__name__}: only "
        "those have the same hash in every process; emit it as text, too, and group by that"
    )
