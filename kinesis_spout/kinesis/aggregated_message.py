"""The protobuf message of an aggregated record. ``aggregated_record`` imports it when it meets one."""

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from kinesis_spout.kinesis.aggregated_record import NO_HASH_KEY

__all__ = ["AggregatedRecord", "DecodeError"]

_Field = descriptor_pb2.FieldDescriptorProto
_MESSAGES: Final = {
    "Tag": (
        _Field(name="key", number=1, label=_Field.LABEL_REQUIRED, type=_Field.TYPE_STRING),
        _Field(name="value", number=2, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING),
    ),
    "Record": (
        _Field(name="partition_key_index", number=1, label=_Field.LABEL_REQUIRED, type=_Field.TYPE_UINT64),
        _Field(
            name="explicit_hash_key_index",
            number=2,
            label=_Field.LABEL_OPTIONAL,
            type=_Field.TYPE_UINT64,
            default_value=str(NO_HASH_KEY),
        ),
        _Field(name="data", number=3, label=_Field.LABEL_REQUIRED, type=_Field.TYPE_BYTES),
        _Field(name="tags", number=4, label=_Field.LABEL_REPEATED, type_name="Tag"),
    ),
    "AggregatedRecord": (
        _Field(name="partition_key_table", number=1, label=_Field.LABEL_REPEATED, type=_Field.TYPE_STRING),
        _Field(
            name="explicit_hash_key_table", number=2, label=_Field.LABEL_REPEATED, type=_Field.TYPE_STRING
        ),
        _Field(name="records", number=3, label=_Field.LABEL_REPEATED, type_name="Record"),
    ),
}


def _message_class() -> Any:
    """Make the message's class in a separate pool: other packages use the same name."""
    file = descriptor_pb2.FileDescriptorProto(name="aggregated_record.proto", syntax="proto2")
    for name, fields in _MESSAGES.items():
        file.message_type.add(name=name, field=fields)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("AggregatedRecord"))


AggregatedRecord: Final = _message_class()
