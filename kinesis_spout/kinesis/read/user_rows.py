"""The values of user records as columns, gathered from their messages.

A user record is a message inside the message. Declared as plain bytes, it costs the parser almost nothing;
its fields are then found together with those of a page's other user records. Producers write a user record in
one way: the number of its partition key, optionally that of its explicit hash key, and its data, each after a
tag. A number is a varint: seven bits in each byte, as many bytes as it needs. So a few steps over all records
together find where each one's data begins. After it may stand what ours writes where it traces: one tag with a
``traceparent``, which is passed over. A record written in any other way is called odd.
https://protobuf.dev/programming-guides/encoding/
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from kinesis_spout.kinesis.aggregated_record import message_in, tags_of
from kinesis_spout.kinesis.read.user_records import HashKeys
from kinesis_spout.model.record import TraceContext

_Field = descriptor_pb2.FieldDescriptorProto
_KEY_TAG: Final = 0x08
_HASH_KEY_TAG: Final = 0x10
_DATA_TAG: Final = 0x1A
_LONGEST_NUMBER: Final = 5
"""The longest varint, in bytes: no length or count of a record needs more."""
_TRACE_TAG: Final = tags_of(TraceContext("0" * 55))
_TRACE_TAG_BYTES: Final = len(_TRACE_TAG)
_TRACE_TAG_HEAD: Final = np.frombuffer(_TRACE_TAG.rstrip(b"0"), np.uint8)
"""What stands in each before the value."""
Numbers = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]
_Bytes = npt.NDArray[np.uint8]


class Messages:
    """The messages of several carriers, in order. Mutable while they are added."""

    def __init__(self) -> None:
        self.carriers: list[int] = []
        """Of each message: its carrier's row in the page."""
        self.keys: list[bytes] = []
        """Of all messages, as UTF-8."""
        self.hash_keys: list[bytes] = []
        self.records: list[bytes] = []
        self.key_counts: list[int] = []
        """How many keys each message has."""
        self.hash_key_counts: list[int] = []
        self.record_counts: list[int] = []

    def add(self, carrier: int, data: bytes | memoryview) -> bool:
        """Add a carrier's message. False for an ordinary record, if that shows here."""
        body = message_in(data)
        if body is None:
            return False
        message = _Outline()
        try:
            message.ParseFromString(body)
        except DecodeError:
            return False
        self.carriers.append(carrier)
        self._take(message.partition_key_table, self.keys, self.key_counts)
        self._take(message.explicit_hash_key_table, self.hash_keys, self.hash_key_counts)
        self._take(message.records, self.records, self.record_counts)
        return True

    @staticmethod
    def _take(found: Sequence[bytes], into: list[bytes], counts: list[int]) -> None:
        values = found[:]  # copies all at once, not one by one
        into += values
        counts.append(len(values))


def _outline_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="aggregate_outline.proto", syntax="proto2")
    fields = [
        _Field(name=name, number=number, label=_Field.LABEL_REPEATED, type=_Field.TYPE_BYTES)
        for number, name in enumerate(("partition_key_table", "explicit_hash_key_table", "records"), 1)
    ]
    file.message_type.add(name="Outline", field=fields)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Outline"))


_Outline: Final = _outline_class()


@dataclass(frozen=True, slots=True, kw_only=True)
class _UserFields:
    key: Numbers
    """The number of its partition key in its message."""
    hash_key: Numbers
    """The number of its explicit hash key; -1 if it has none."""
    data_start: Numbers
    """Where its data begins."""
    data_end: Numbers
    """Where it ends: with the record, or before its tag."""
    is_odd: _Flags
    """It is written in another way; its other fields are invalid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRows:
    """Columns of the same length: user records, in the order of their carriers."""

    carriers: Numbers
    counts: Numbers
    data: pa.Array
    partition_key: pa.Array
    explicit_hash_key: pa.Array

    @property
    def sub_sequence_number(self) -> Numbers:
        return np.arange(len(self.data)) - np.repeat(_before(self.counts), self.counts)


class Gathering:
    """Reads messages together: only those that ``Messages`` holds when this is made."""

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self._counts = np.array(messages.record_counts, np.int64)
        self._records = pa.array(messages.records, pa.binary())

    def odd_carriers(self) -> set[int]:
        """Return the carriers whose messages are invalid, or not written as producers do."""
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
        """Count the user records outside a shard by their hash keys."""
        messages, fields = self._messages, self._fields
        keys = np.array([not hash_keys.have(key) for key in messages.keys], bool)
        outside = keys[fields.key + self._first_key]
        explicit = fields.hash_key >= 0
        if explicit.any():
            given = np.array([not hash_keys.have_explicit(key.decode()) for key in messages.hash_keys], bool)
            outside[explicit] = given[(fields.hash_key + self._first_hash_key)[explicit]]
        return int(outside.sum())

    def rows(self) -> UserRows:
        """Return the user records. No carrier may be odd."""
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
    def _fields(self) -> _UserFields:
        return _user_fields(self._content, self._offsets[:-1], self._offsets[1:])

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
        return np.repeat(np.asarray(of_messages, np.int64), self._counts)

    def _data(self) -> pa.Array:
        # As if the bytes before each record's data, and those after it if any has some, were rows too: Arrow
        # then drops them.
        starts, ends = self._fields.data_start, self._fields.data_end
        rows = 2 if np.array_equal(ends, self._offsets[1:]) else 3
        offsets = np.zeros(rows * len(self._records) + 1, np.int32)
        offsets[1::rows] = starts
        offsets[2::rows] = ends
        offsets[rows::rows] = self._offsets[1:]
        parts = pa.BinaryArray.from_buffers(
            pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), self._records.buffers()[2]]
        )
        return parts.take(pa.array(np.arange(1, len(offsets), rows, dtype=np.int32)))

    def _explicit_hash_keys(self) -> pa.Array:
        numbers = self._fields.hash_key
        if not self._messages.hash_keys:
            return pa.nulls(len(numbers), pa.string())
        return pc.take(self._hash_keys, pa.array(numbers + self._first_hash_key, mask=numbers < 0))


def _before(counts: Numbers) -> Numbers:
    sums: Numbers = np.cumsum(counts) - counts
    return sums


def _texts(values: list[bytes]) -> pa.Array | None:
    """Make a column of UTF-8; None if a value is invalid."""
    try:
        return pa.array(values, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return None


def _user_fields(content: _Bytes, starts: Numbers, ends: Numbers) -> _UserFields:
    """Find the fields of the records in ``content``, each from its start to its end."""
    if not content.size:
        nothing = np.zeros_like(starts)
        return _UserFields(
            key=nothing,
            hash_key=nothing,
            data_start=nothing,
            data_end=nothing,
            is_odd=np.ones(len(starts), bool),
        )
    # An odd record may lead into the records after it: what is found there does not fit its own end.
    is_odd = content.take(starts, mode="clip") != _KEY_TAG
    key, at = _numbers(content, starts + 1)
    has_hash_key = content.take(at, mode="clip") == _HASH_KEY_TAG
    hash_key = np.full(len(starts), -1, np.int64)
    if has_hash_key.any():
        hash_key[has_hash_key], at[has_hash_key] = _numbers(content, at[has_hash_key] + 1)
    is_odd |= content.take(at, mode="clip") != _DATA_TAG
    length, at = _numbers(content, at + 1)
    data_end = at + length
    longer = np.flatnonzero(data_end != ends)
    if longer.size:
        is_odd[longer] |= ~_have_trace_tags(content, data_end[longer], ends[longer])
    return _UserFields(key=key, hash_key=hash_key, data_start=at, data_end=data_end, is_odd=is_odd)


def _have_trace_tags(content: _Bytes, starts: Numbers, ends: Numbers) -> _Flags:
    """Whether from each start to its end there is one tag named ``traceparent`` of the usual length."""
    heads = content.take(starts[:, None] + np.arange(len(_TRACE_TAG_HEAD)), mode="clip")
    found: _Flags = (ends - starts == _TRACE_TAG_BYTES) & (heads == _TRACE_TAG_HEAD).all(axis=1)
    return found


def _numbers(content: _Bytes, at: Numbers) -> tuple[Numbers, Numbers]:
    """Read a varint at each place. Returns them, and where each ends; a too long one ends nowhere."""
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
