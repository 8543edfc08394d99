"""Aggregated records, parsed down to the bytes of each user record.

A user record is a message inside the message. Declared as plain bytes, it costs the parser almost nothing;
``user_rows`` then finds the fields of all of a page's user records together.
"""

from collections.abc import Sequence
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from kinesis_spout.kinesis.aggregated_record import message_in

_Field = descriptor_pb2.FieldDescriptorProto


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
