"""Several user records in one record of Kinesis: the format of the Kinesis Producer Library (KPL).

Four magic bytes, a protobuf message, and the MD5 of the message. The message names every key once; a user
record is its data and the numbers of its keys. A reader that does not know the format sees one record.
A user record may have tags, which readers pass over; trace context is in them.
https://github.com/awslabs/amazon-kinesis-producer/blob/master/aggregation-format.md
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache, partial
from hashlib import md5
from itertools import chain, count
from typing import Any, Final, NamedTuple

from kinesis_spout.model.record import (
    MAX_TRACESTATE_CHARACTERS,
    TRACEPARENT,
    TRACESTATE,
    TraceContext,
)

MAGIC: Final = b"\xf3\x89\x9a\xc2"
_DIGEST_BYTES: Final = 16

FRAME_BYTES: Final = len(MAGIC) + _DIGEST_BYTES
"""The bytes of an aggregated record besides its message."""
RECORD_BYTES: Final = 20
"""The most bytes of a user record besides its data: the tags, lengths and key numbers around it."""
KEY_BYTES: Final = 3
"""The most bytes of a key besides its text, once in a message."""

_NO_HASH_KEY: Final = 2**64 - 1
"""The number of the hash key of a user record that has none. Asking whether a field is present takes twice as
long as reading it."""


class UserRecord(NamedTuple):
    partition_key: str
    data: bytes
    explicit_hash_key: str | None = None
    trace: TraceContext | None = None
    """Written as tags."""


def aggregate(records: Iterable[UserRecord]) -> bytes:
    """Encode user records as one record's data, in order. For its size see `aggregate_columns`."""
    given = list(records)
    return aggregate_columns(
        [record.partition_key for record in given],
        [record.data for record in given],
        [record.explicit_hash_key for record in given],
        [record.trace for record in given] if any(record.trace for record in given) else None,
    )


def aggregate_columns(
    partition_keys: Sequence[str],
    data: Sequence[bytes],
    explicit_hash_keys: Sequence[str | None] | None = None,
    traces: Sequence[TraceContext | None] | None = None,
) -> bytes:
    """Encode user records as one record's data, in order.

    The size is at most `FRAME_BYTES`, plus for each record its data, its `tags_of` and `RECORD_BYTES`, plus for
    each different partition key and explicit hash key its UTF-8 and `KEY_BYTES`. The message is written by hand:
    protobuf takes twice as long, because it first makes an object of each record.
    """
    different = dict.fromkeys(partition_keys)
    pieces = list(map(_KEY_FIELDS.__getitem__, different))
    numbers: Iterable[int] = count()
    if len(different) < len(data):  # else each record has a key of its own
        numbers = map(dict(zip(different, count())).__getitem__, partition_keys)
    if explicit_hash_keys is None and traces is None:
        heads = map(_HEADS.__getitem__, zip(numbers, map(len, data)))  # noqa: B905 - a count has no end
        pieces += chain.from_iterable(zip(heads, data, strict=True))
    else:
        nothing = [None] * len(data)
        given = explicit_hash_keys or nothing
        hash_keys = dict(zip(dict.fromkeys(key for key in given if key is not None), count()))
        pieces += [_text_field(_HASH_KEY_TABLE, key) for key in hash_keys]
        for key_number, each, hash_key, trace in zip(numbers, data, given, traces or nothing):  # noqa: B905
            number = None if hash_key is None else hash_keys[hash_key]
            tags = b"" if trace is None else tags_of(trace)
            pieces += (_head(key_number, len(each), number, len(tags)), each, tags)
    body = b"".join(pieces)
    return b"".join((MAGIC, body, _digest(body)))


class Contents(NamedTuple):
    """The user records of an aggregated record, in order, as one list for each field."""

    partition_keys: list[str]
    data: list[bytes]
    explicit_hash_keys: list[str | None] | None
    """None: no user record has one."""
    traces: list[TraceContext | None] | None = None
    """Those that are valid and sampled. None: no user record has one, or they were not asked for."""


def take_apart(data: bytes | memoryview) -> tuple[UserRecord, ...] | None:
    """Return the user records in order, without tags; None for an ordinary record. See ``contents``."""
    inside = contents(data)
    if inside is None:
        return None
    hash_keys = inside.explicit_hash_keys or [None] * len(inside.data)
    return tuple(map(UserRecord, inside.partition_keys, inside.data, hash_keys))


def contents(data: bytes | memoryview, *, with_traces: bool = False) -> Contents | None:
    """Decode a record's data; None for an ordinary record. Tags cost time, so they are read on request.

    Data that begins like an aggregated record, but has a wrong digest, message, key or key number, is an
    ordinary record: no data is lost because it looks like something else.
    """
    body = _message_in(data)
    if body is None:
        return None
    message_type, decode_error = _message()
    message = message_type()
    try:
        message.ParseFromString(body)
        # The parser does not check that required fields are present.
        inside = _contents_of(message) if message.IsInitialized() else None
        # Most carriers have none, and one look at the bytes takes less than one at each user record's tags.
        if inside is None or not with_traces or _TRACEPARENT not in bytes(body):
            return inside
        return inside._replace(traces=_traces(message))
    except (decode_error, IndexError):
        return None


@cache
def _message() -> tuple[Any, type[Exception]]:
    """Make the message's class, in a pool of its own, as other packages use the same name; with its error."""
    from google.protobuf import (  # noqa: PLC0415 - most streams do without protobuf
        descriptor_pb2,
        descriptor_pool,
        message,
        message_factory,
    )

    field = descriptor_pb2.FieldDescriptorProto
    required = partial(field, label=field.LABEL_REQUIRED)
    optional = partial(field, label=field.LABEL_OPTIONAL)
    repeated = partial(field, label=field.LABEL_REPEATED)
    file = descriptor_pb2.FileDescriptorProto(name="aggregated_record.proto", syntax="proto2")
    file.message_type.add(
        name="Tag",
        field=[
            required(name="key", number=1, type=field.TYPE_STRING),
            optional(name="value", number=2, type=field.TYPE_STRING),
        ],
    )
    file.message_type.add(
        name="Record",
        field=[
            required(name="partition_key_index", number=1, type=field.TYPE_UINT64),
            optional(
                name="explicit_hash_key_index",
                number=2,
                type=field.TYPE_UINT64,
                default_value=str(_NO_HASH_KEY),
            ),
            required(name="data", number=3, type=field.TYPE_BYTES),
            repeated(name="tags", number=4, type_name="Tag"),
        ],
    )
    file.message_type.add(
        name="AggregatedRecord",
        field=[
            repeated(name="partition_key_table", number=1, type=field.TYPE_STRING),
            repeated(name="explicit_hash_key_table", number=2, type=field.TYPE_STRING),
            repeated(name="records", number=3, type_name="Record"),
        ],
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("AggregatedRecord"))
    return made, message.DecodeError


def _message_in(data: bytes | memoryview) -> memoryview | None:
    """Return the framed message, not copied; None without a frame, or with a wrong digest."""
    if data[: len(MAGIC)] != MAGIC or len(data) < FRAME_BYTES:
        return None
    whole = memoryview(data)
    body = whole[len(MAGIC) : -_DIGEST_BYTES]
    return body if _digest(body) == whole[-_DIGEST_BYTES:] else None


def _contents_of(message: Any) -> Contents | None:
    keys, hash_keys = list(message.partition_key_table), list(message.explicit_hash_key_table)
    # Invalid UTF-8 comes as bytes.
    if not all(type(key) is str for key in keys + hash_keys):
        return None
    records = list(message.records)
    return Contents(
        partition_keys=[keys[record.partition_key_index] for record in records],
        data=[record.data for record in records],
        explicit_hash_keys=_hash_keys(records, hash_keys),
    )


def _hash_keys(records: list[Any], hash_keys: list[str]) -> list[str | None] | None:
    numbers = [record.explicit_hash_key_index for record in records]
    if numbers.count(_NO_HASH_KEY) == len(numbers):
        return None
    return [None if number == _NO_HASH_KEY else hash_keys[number] for number in numbers]


def _traces(message: Any) -> list[TraceContext | None] | None:
    traces = [_trace(record.tags) for record in message.records]
    return traces if any(traces) else None


def _trace(tags: Iterable[Any]) -> TraceContext | None:
    values = {tag.key: tag.value for tag in tags}
    parent, state = values.get(TRACEPARENT), values.get(TRACESTATE, "")
    if not (isinstance(parent, str) and isinstance(state, str)):  # invalid UTF-8 comes as bytes
        return None
    trace = TraceContext(parent, state if len(state) <= MAX_TRACESTATE_CHARACTERS else "")
    return trace if trace.is_sampled else None


_KEY_TABLE: Final = b"\x0a"
_HASH_KEY_TABLE: Final = b"\x12"
_RECORD: Final = b"\x1a"
_KEY_NUMBER: Final = b"\x08"
_HASH_KEY_NUMBER: Final = b"\x10"
_DATA: Final = b"\x1a"
_TAGS: Final = b"\x22"
_TRACEPARENT: Final = TRACEPARENT.encode()
_TAG_KEY: Final = b"\x0a"
_TAG_VALUE: Final = b"\x12"
"""Field tags: a field's number, and whether a number or a length follows.
https://protobuf.dev/programming-guides/encoding/"""


def _head(key_number: int, data_bytes: int, hash_key_number: int | None = None, tag_bytes: int = 0) -> bytes:
    inside = _KEY_NUMBER + _varint(key_number)
    if hash_key_number is not None:
        inside += _HASH_KEY_NUMBER + _varint(hash_key_number)
    inside += _DATA + _varint(data_bytes)
    return _RECORD + _varint(len(inside) + data_bytes + tag_bytes) + inside


@lru_cache(maxsize=10_000)
def tags_of(trace: TraceContext) -> bytes:
    """Encode the tags of a user record: what they weigh in its aggregated record."""
    values = ((TRACEPARENT, trace.traceparent), (TRACESTATE, trace.tracestate))
    tags = [_text_field(_TAG_KEY, name) + _text_field(_TAG_VALUE, value) for name, value in values if value]
    return b"".join([_TAGS + _varint(len(tag)) + tag for tag in tags])


def _text_field(tag: bytes, text: str) -> bytes:
    encoded = text.encode()
    return tag + _varint(len(encoded)) + encoded


def _varint(number: int) -> bytes:
    """Encode a number seven bits at a time, the lowest first."""
    written = bytearray()
    while number > _SEVEN_BITS:
        written.append(number & _SEVEN_BITS | _MORE_FOLLOW)
        number >>= 7
    written.append(number)
    return bytes(written)


class _Made(dict[Any, bytes]):
    """Remembers what was made, up to a number of things. A lookup takes less than that of an ``lru_cache``."""

    def __init__(self, make: Callable[[Any], bytes]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: Any) -> bytes:
        if len(self) >= _REMEMBERED:
            self.clear()
        made = self[key] = self._make(key)
        return made


_REMEMBERED: Final = 100_000
_KEY_FIELDS: Final = _Made(partial(_text_field, _KEY_TABLE))
"""The fields of partition keys, by key."""
_HEADS: Final = _Made(lambda numbers: _head(*numbers))
"""The heads of user records, by the number of the key and the size of the data."""

_SEVEN_BITS: Final = 0x7F
_MORE_FOLLOW: Final = 0x80


def _digest(body: bytes | memoryview) -> bytes:
    return md5(body, usedforsecurity=False).digest()
