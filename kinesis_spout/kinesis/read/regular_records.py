"""Decodes columns directly from the bytes of a reply, when all its records are written alike.

Kinesis writes the records of a page with the same keys in the same order. Then the places of the quotes tell
where every value is, and whole columns are gathered at once instead of record by record: a third cheaper for
a large page. The decoder of ``page``, which accepts everything, handles whatever is irregular or doubtful.

Why this is safe: without a backslash in the body, a quote always begins or ends a string; and everything but
the values, down to the last brace, is compared with the first record at the same offset.
"""

import binascii
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pybase64

from kinesis_spout.kinesis.read.record_columns import RecordColumns, arrivals

WORTHWHILE_BYTES: Final = 1024 * 1024
"""Of a body. Decoding smaller ones record by record is as cheap: this has a fixed cost of 0.3 ms."""

_AT_ONCE_BYTES: Final = 1024 * 1024
"""Handled at a time: it fits a processor's cache."""
_LARGE_BYTES: Final = 8 * 1024
"""From this average length of base64 on, values are decoded one by one; shorter ones are cheaper together."""
_MAX_BYTES: Final = 2**31 - 1
"""Arrow's offsets have 32 bits."""
_RECORDS: Final = re.compile(rb'"Records"\s*:\s*\[\s*')
_MEMBER: Final = re.compile(rb'\s*"(\w+)"\s*:\s*(?:"([^"]*)"|(-?[0-9][0-9.eE+-]*))\s*')
_STRINGS: Final = frozenset({b"Data", b"PartitionKey", b"SequenceNumber", b"EncryptionType"})
_ARRIVAL: Final = b"ApproximateArrivalTimestamp"
_REQUIRED: Final = _STRINGS - {b"EncryptionType"} | {_ARRIVAL}
_QUOTE, _PADDING, _ZERO = ord('"'), ord("="), ord("A")

_Integers = npt.NDArray[np.int32]
_Bytes = npt.NDArray[np.uint8]


def regular_columns(body: bytes) -> tuple[RecordColumns, bytes] | None:
    """Return a reply's records as columns, and its body without them.

    None if the reply is irregular: that does not tell whether it is a good one.
    """
    if len(body) > _MAX_BYTES or not body.isascii() or b"\\" in body:
        return None
    before = _RECORDS.search(body)
    layout = None if before is None else _Layout.of(body, before.end())
    if before is None or layout is None:
        return None
    first, end = before.end(), body.rfind(layout.tail + b"]") + len(layout.tail)
    if end <= first:
        return None
    columns = _columns(memoryview(body)[first:end], layout)
    return None if columns is None else (columns, body[:first] + body[end:])


@dataclass(frozen=True, slots=True)
class _Layout:
    members: tuple[bytes, ...]
    quotes: int
    """How many a record has."""
    between: tuple[bytes, ...]
    """What precedes each member's value, from the value before it on; for the first one, between two
    records."""
    head: bytes
    tail: bytes
    colon: int
    """Characters from the quote of the arrival's key to its number."""
    comma: int
    """Characters from the end of that number to the next quote."""

    @classmethod
    def of(cls, body: bytes, first: int) -> "_Layout | None":
        if body[first : first + 1] != b"{":
            return None
        keys, values, quotes, at = [], [], 0, first + 1
        while (member := _MEMBER.match(body, at)) is not None:
            key, text, number = member.groups()
            if (text is None) != (key == _ARRIVAL):
                return None
            keys.append(key)
            values.append(member.span(2) if number is None else member.span(3))
            quotes += 2 if text is None else 4
            at = member.end()
            if body[at : at + 1] != b",":
                break
            at += 1
        found = set(keys)
        if body[at : at + 1] != b"}" or len(found) < len(keys) or not found >= _REQUIRED:
            return None
        if found - _STRINGS - {_ARRIVAL} or keys[-1] == _ARRIVAL:
            return None
        number = keys.index(_ARRIVAL)
        tail = body[values[-1][1] : at + 1]
        head = body[first : values[0][0]]
        separator = re.compile(rb"\s*,\s*").match(body, at + 1)
        inner = [body[before[1] : after[0]] for before, after in itertools.pairwise(values)]
        return cls(
            members=tuple(keys),
            quotes=quotes,
            between=(tail + (separator.group() if separator else b"") + head, *inner),
            head=head,
            tail=tail,
            colon=values[number][0] - body.rindex(b'"', 0, values[number][0]),
            comma=body.index(b'"', values[number][1]) - values[number][1],
        )


class _Values:
    def __init__(self, text: memoryview, starts: _Integers, ends: _Integers) -> None:
        self._members = starts.shape[1]
        self.starts = starts
        self.ends = ends
        # As if every value and all between two values were a row: Arrow takes out the requested ones.
        offsets = np.empty(2 * starts.size, np.int32)
        offsets[0::2] = starts.ravel()
        offsets[1::2] = ends.ravel()
        self._all = _binary(offsets, pa.py_buffer(text))

    def column(self, member: int) -> pa.Array:
        return self._take(2 * member, 2 * self._members).cast(pa.string())

    def between(self) -> pa.Buffer:
        return self._take(1, 2).buffers()[2]

    def _take(self, first: int, step: int) -> pa.Array:
        return self._all.take(pa.array(np.arange(first, len(self._all), step, dtype=np.int32)))


def _columns(text: memoryview, layout: _Layout) -> RecordColumns | None:
    offsets = _offsets(np.frombuffer(text, np.uint8), layout)
    if offsets is None:
        return None
    values = _Values(text, *offsets)
    if not _is_alike(values, text, layout):
        return None
    data = layout.members.index(b"Data")
    texts = {key: values.column(number) for number, key in enumerate(layout.members) if number != data}
    try:
        return RecordColumns(
            data=_decoded(text, values.starts[:, data], values.ends[:, data]),
            partition_key=texts[b"PartitionKey"],
            sequence_number=texts[b"SequenceNumber"],
            arrival=arrivals(texts[_ARRIVAL].cast(pa.float64())),
            encryption_type=texts.get(b"EncryptionType", pa.nulls(len(values.starts), pa.string())),
        )
    except (pa.ArrowInvalid, binascii.Error):
        return None


def _offsets(text: _Bytes, layout: _Layout) -> tuple[_Integers, _Integers] | None:
    """Find where the values begin and end, a row per record, a column per member; None if records differ."""
    quotes = _quotes(text)
    rows, rest = divmod(len(quotes), layout.quotes)
    if rest:
        return None
    grid = quotes.reshape(rows, layout.quotes)
    starts, ends = (np.empty((rows, len(layout.members)), np.int32) for _ in range(2))
    quote = 0
    for member, key in enumerate(layout.members):
        quote += 2  # its own
        if key == _ARRIVAL:
            starts[:, member] = grid[:, quote - 1] + layout.colon
            ends[:, member] = grid[:, quote] - layout.comma
        else:
            starts[:, member] = grid[:, quote] + 1
            ends[:, member] = grid[:, quote + 1]
            quote += 2
    return starts, ends


def _quotes(text: _Bytes) -> _Integers:
    found = []
    scratch = np.empty(min(len(text), _AT_ONCE_BYTES), bool)
    for start in range(0, len(text), _AT_ONCE_BYTES):
        piece = text[start : start + _AT_ONCE_BYTES]
        is_quote = scratch[: len(piece)]
        np.equal(piece, _QUOTE, out=is_quote)
        found.append(np.flatnonzero(is_quote).astype(np.int32) + np.int32(start))
    return np.concatenate(found)


def _is_alike(values: _Values, text: memoryview, layout: _Layout) -> bool:
    starts, ends = values.starts, values.ends
    if (starts > ends).any() or text[: starts[0, 0]] != layout.head or text[ends[-1, -1] :] != layout.tail:
        return False
    outer, inner = layout.between[0], layout.between[1:]
    lengths = [len(part) for part in inner]
    if (starts[:, 1:] - ends[:, :-1] != lengths).any() or (starts[1:, 0] - ends[:-1, -1] != len(outer)).any():
        return False
    alike = (b"".join(inner) + outer) * len(starts)
    return bool(values.between().equals(pa.py_buffer(alike[: len(alike) - len(outer)])))


def _decoded(text: memoryview, starts: _Integers, ends: _Integers) -> pa.Array:
    """Decode base64 values. Raises ``binascii.Error``."""
    characters = np.frombuffer(text, np.uint8)
    lengths = ends - starts
    if (lengths % 4).any():
        raise binascii.Error("expected four characters for every three bytes")
    # At a value's end, or before it where it is empty: there is a quote then, which is no padding.
    last = characters[ends - 1] == _PADDING
    padding = last.astype(np.int32) + (last & (characters[ends - 2] == _PADDING))
    offsets = np.zeros(len(starts) + 1, np.int32)
    np.cumsum(lengths // 4 * 3 - padding, out=offsets[1:])
    data = pa.allocate_buffer(int(offsets[-1]))
    whole = np.frombuffer(data, np.uint8)
    if int(lengths.sum(dtype=np.int64)) >= _LARGE_BYTES * len(starts):
        for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            value = pybase64.b64decode(text[start:end], validate=True)
            whole[offsets[row] : offsets[row + 1]] = np.frombuffer(value, np.uint8)
        return _binary(offsets, data)
    for first, after in _chunks(lengths):
        rows = slice(first, after)
        piece = _decoded_piece(text, starts[rows], ends[rows], padding[rows])
        whole[offsets[first] : offsets[after]] = np.frombuffer(piece, np.uint8)
    return _binary(offsets, data)


def _chunks(lengths: _Integers) -> Iterator[tuple[int, int]]:
    ends = np.cumsum(lengths, dtype=np.int64)
    first = 0
    while first < len(lengths):
        before = ends[first - 1] if first else 0
        after = max(first + 1, int(np.searchsorted(ends, before + _AT_ONCE_BYTES, side="right")))
        yield first, after
        first = after


def _decoded_piece(text: memoryview, starts: _Integers, ends: _Integers, padding: _Integers) -> pa.Buffer:
    values = _every_other(starts, ends, pa.py_buffer(text))
    if not padding.any():
        return pa.py_buffer(pybase64.b64decode(memoryview(values.buffers()[2]), validate=True))
    # A decoder accepts padding only at the very end: so it becomes zeros, which are cut off afterwards.
    characters = np.frombuffer(values.buffers()[2], np.uint8)  # not shared
    after = np.cumsum(ends - starts, dtype=np.int32)
    characters[after[padding > 0] - 1] = _ZERO
    characters[after[padding > 1] - 2] = _ZERO
    decoded = pybase64.b64decode(characters.data, validate=True)
    whole = after // 4 * 3
    begins = np.concatenate((np.zeros(1, np.int32), whole[:-1]))
    return _every_other(begins, whole - padding, pa.py_buffer(decoded)).buffers()[2]


def _every_other(starts: _Integers, ends: _Integers, content: pa.Buffer) -> pa.Array:
    offsets = np.empty(2 * len(starts), np.int32)
    offsets[0::2] = starts
    offsets[1::2] = ends
    return _binary(offsets, content).take(pa.array(np.arange(0, len(offsets), 2, dtype=np.int32)))


def _binary(offsets: _Integers, content: pa.Buffer) -> pa.Array:
    return pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), content])
