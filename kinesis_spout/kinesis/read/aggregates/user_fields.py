"""The fields of many user records, found all at once in their bytes.

Producers write a user record in one way: the number of its partition key, maybe that of its explicit hash key, and
its data, each after a tag. A number takes as many bytes as it needs, seven bits in each (a varint). So a few steps
over all records together tell where each one's data begins. A record that is written otherwise is called odd.
https://protobuf.dev/programming-guides/encoding/
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

KEY_TAG: Final = 0x08
HASH_KEY_TAG: Final = 0x10
DATA_TAG: Final = 0x1A

_LONGEST_NUMBER: Final = 5
"""Bytes. Nothing of a record is so long or so many that it takes more."""

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserFields:
    """One of each for every user record, in their order."""

    key: Numbers
    """The number of its partition key in its message."""
    hash_key: Numbers
    """The number of its explicit hash key; -1 if it has none."""
    data_start: Numbers
    """Where its data begins. It ends with the record."""
    is_odd: Flags
    """It is written otherwise, and its other fields say nothing."""


def user_fields(content: Bytes, starts: Numbers, ends: Numbers) -> UserFields:
    """Find the fields of the records that lie in ``content``, each from its start to its end."""
    if not content.size:
        nothing = np.zeros_like(starts)
        return UserFields(
            key=nothing, hash_key=nothing, data_start=nothing, is_odd=np.ones(len(starts), bool)
        )
    # An odd record may lead astray, into the records behind it: what is found there does not fit its own end.
    is_odd = content.take(starts, mode="clip") != KEY_TAG
    key, at = _numbers(content, starts + 1)
    has_hash_key = content.take(at, mode="clip") == HASH_KEY_TAG
    hash_key = np.full(len(starts), -1, np.int64)
    if has_hash_key.any():
        hash_key[has_hash_key], at[has_hash_key] = _numbers(content, at[has_hash_key] + 1)
    is_odd |= content.take(at, mode="clip") != DATA_TAG
    length, at = _numbers(content, at + 1)
    is_odd |= at + length != ends
    return UserFields(key=key, hash_key=hash_key, data_start=at, is_odd=is_odd)


def _numbers(content: Bytes, at: Numbers) -> tuple[Numbers, Numbers]:
    """Read a varint at each place. Returns them, and where each ends; one that is too long ends nowhere."""
    byte = content.take(at, mode="clip").astype(np.int64)
    value, at, more = byte & 0x7F, at + 1, np.flatnonzero(byte & 0x80)
    for shift in range(7, 7 * _LONGEST_NUMBER, 7):
        if not more.size:
            return value, at
        byte = content.take(at[more], mode="clip").astype(np.int64)
        value[more] |= (byte & 0x7F) << shift
        at[more] += 1
        more = more[byte >= 0x80]  # noqa: PLR2004 - the bit that says that more follows
    at[more] = len(content) + 1
    return value, at
