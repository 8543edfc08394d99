"""Aggregated records parsed as far as the bytes of each user record: those of a page are then looked at together.

A user record is a message in the message. Told that it is just bytes, the parser is done with it in no time. What
is in it is found by ``user_rows``.
"""

from collections.abc import Sequence
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from kinesis_spout.kinesis.aggregated_record import message_in

_Field = descriptor_pb2.FieldDescriptorProto


class Messages:
    """The messages of several carriers, one after the other. Mutable while they are added."""

    def __init__(self) -> None:
        self.carriers: list[int] = []
        """Whose each is: the carrier's row in its page."""
        self.keys: list[bytes] = []
        """Of all of them, as UTF-8."""
        self.hash_keys: list[bytes] = []
        self.records: list[bytes] = []
        self.key_counts: list[int] = []
        """How many of the keys are of each message."""
        self.hash_key_counts: list[int] = []
        self.record_counts: list[int] = []

    def add(self, carrier: int, data: bytes | memoryview) -> bool:
        """Take in a carrier's message. False if the carrier is an ordinary record, as far as one sees here."""
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
        values = found[:]  # a list at once, instead of one by one
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
