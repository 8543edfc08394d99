"""The values of user records as columns, gathered from the messages that have them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kinesis_spout.kinesis.read.aggregates.messages import Messages
from kinesis_spout.kinesis.read.aggregates.user_fields import Numbers, UserFields, user_fields
from kinesis_spout.kinesis.read.user_records import HashKeys


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRows:
    """Columns of the same length: user records, in the order of their carriers."""

    carriers: Numbers
    """The rows that they replace."""
    counts: Numbers
    """How many there are of each carrier."""
    data: pa.Array
    partition_key: pa.Array
    explicit_hash_key: pa.Array

    @property
    def sub_sequence_number(self) -> Numbers:
        """The index of each in its carrier."""
        return np.arange(len(self.data)) - np.repeat(_before(self.counts), self.counts)


class Gathering:
    """Looks at messages together. Not for others than those that ``Messages`` has taken in until now."""

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self._counts = np.array(messages.record_counts, np.int64)
        self._records = pa.array(messages.records, pa.binary())

    def odd_carriers(self) -> set[int]:
        """Name the carriers whose messages are not written as producers do, or are no good ones."""
        messages, fields = self._messages, self._fields
        is_odd = fields.is_odd | (fields.key >= self._of_records(messages.key_counts))
        is_odd |= fields.hash_key >= self._of_records(messages.hash_key_counts)
        odd = set(self._of_records(messages.carriers)[is_odd].tolist())
        for found, texts, counts in (
            (self._keys, messages.keys, messages.key_counts),
            (self._hash_keys, messages.hash_keys, messages.hash_key_counts),
        ):
            if found is None:
                odd |= {
                    carrier
                    for carrier, start, count in zip(
                        messages.carriers, _before(np.array(counts, np.int64)), counts, strict=True
                    )
                    if _texts(texts[start : start + count]) is None
                }
        return odd

    def outside(self, hash_keys: HashKeys) -> int:
        """Count the user records that lie outside of a shard by their hash keys."""
        messages, fields = self._messages, self._fields
        keys = np.array([not hash_keys.have(key) for key in messages.keys], bool)
        outside = keys[fields.key + self._first_key]
        explicit = fields.hash_key >= 0
        if explicit.any():
            given = np.array([not hash_keys.have_explicit(key.decode()) for key in messages.hash_keys], bool)
            outside[explicit] = given[(fields.hash_key + self._first_hash_key)[explicit]]
        return int(outside.sum())

    def rows(self) -> UserRows:
        """Give the user records. None of their carriers is odd."""
        return UserRows(
            carriers=np.array(self._messages.carriers, np.int64),
            counts=self._counts,
            data=self._data(),
            partition_key=pc.take(self._keys, pa.array(self._fields.key + self._first_key)),
            explicit_hash_key=self._explicit_hash_keys(),
        )

    @cached_property
    def _keys(self) -> pa.Array | None:
        return _texts(self._messages.keys)

    @cached_property
    def _hash_keys(self) -> pa.Array | None:
        return _texts(self._messages.hash_keys)

    @cached_property
    def _fields(self) -> UserFields:
        return user_fields(self._content, self._offsets[:-1], self._offsets[1:])

    @property
    def _content(self) -> np.typing.NDArray[np.uint8]:
        return np.frombuffer(self._records.buffers()[2], np.uint8)

    @cached_property
    def _offsets(self) -> Numbers:
        return np.frombuffer(self._records.buffers()[1], np.int32)[: len(self._records) + 1].astype(np.int64)

    @cached_property
    def _first_key(self) -> Numbers:
        """Where the keys of each record's message begin among all keys."""
        return self._of_records(_before(np.array(self._messages.key_counts, np.int64)))

    @cached_property
    def _first_hash_key(self) -> Numbers:
        return self._of_records(_before(np.array(self._messages.hash_key_counts, np.int64)))

    def _of_records(self, of_messages: "list[int] | Numbers") -> Numbers:
        """Give a value of each message to each of its records."""
        return np.repeat(np.asarray(of_messages, np.int64), self._counts)

    def _data(self) -> pa.Array:
        # As if what is before each record's data were a row, too: Arrow leaves out every other one.
        offsets = np.zeros(2 * len(self._records) + 1, np.int32)
        offsets[1::2] = self._fields.data_start
        offsets[2::2] = self._offsets[1:]
        parts = pa.BinaryArray.from_buffers(
            pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), self._records.buffers()[2]]
        )
        return parts.take(pa.array(np.arange(1, len(offsets), 2, dtype=np.int32)))

    def _explicit_hash_keys(self) -> pa.Array:
        numbers = self._fields.hash_key
        if not self._messages.hash_keys:
            return pa.nulls(len(numbers), pa.string())
        return pc.take(self._hash_keys, pa.array(numbers + self._first_hash_key, mask=numbers < 0))


def _before(counts: Numbers) -> Numbers:
    """Sum up what is before each."""
    sums: Numbers = np.cumsum(counts) - counts
    return sums


def _texts(values: list[bytes]) -> pa.Array | None:
    """Make a column of UTF-8; None if some of it is none."""
    try:
        return pa.array(values, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return None
