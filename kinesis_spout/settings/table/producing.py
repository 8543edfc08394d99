"""The options of `KinesisProducer`: how it fills its calls, what it holds, and what it does when that is full."""

from typing import Final

from kinesis_spout.settings.grammar.value_types import FLAG, KIB, MIB, choice, seconds, size, whole
from kinesis_spout.settings.option import setting
from kinesis_spout.settings.table.connection import CLIENT, STREAM
from kinesis_spout.settings.table.writing import DEAD_LETTERS

PRODUCES: Final = (
    setting("stream", STREAM, is_required=True, doc="The Kinesis stream to put on: its name or its ARN."),
    *(option for option in CLIENT if option.is_setting),
    setting("order", choice("unordered", "key"), "unordered",
        doc="`unordered`: calls are full, and several are under way; a record that Kinesis refuses comes behind "
            "later ones of its partition key. `key`: a record is sent when the one before it of its key is on the "
            "stream, or given up."),
    setting("aggregation", FLAG, False,
        doc="Several records of one shard in one, in the KPL's format, for consumers that take them apart: this "
            "library, the KCL, Firehose, Lambda with AWS' aggregation modules. Needs kinesis:ListShards."),
    setting("aggregation_max_bytes", size(KIB, MIB), 50 * KIB,
        doc="Bytes in one such record; with `aggregation` only."),
    setting("linger_seconds", seconds(0, 60), 0.05,
        doc="How long a record may wait for others to fill its call."),
    setting("max_records_per_call", whole(1, 500), 500, doc="Records in one call of PutRecords."),
    setting("max_bytes_per_call", size(MIB, 10 * MIB), 5 * MIB,
        doc="Bytes in one call of PutRecords. AWS takes 10 MiB; older endpoints take 5."),
    setting("max_concurrent_calls", whole(1, 64), 4, doc="How many calls may be under way at once."),
    setting("max_buffered_records", whole(1), 100_000, doc="How many records may wait, those in calls included."),
    setting("max_buffered_bytes", size(MIB), 64 * MIB, doc="What they may weigh: data and keys."),
    setting("when_full", choice("block", "refuse", "drop_oldest"), "block",
        doc="What `put` does when the buffer is full. `block`: waits for room, up to `block_timeout_seconds`. "
            "`refuse`: raises `BufferFull`. `drop_oldest`: gives up the oldest record that is not in a call."),
    setting("block_timeout_seconds", seconds(0), 60.0,
        doc="How long `put` waits for room, before it raises `BufferFull`."),
    setting("delivery_timeout_seconds", seconds(above=0), 120.0,
        doc="How long a record is tried for, from when it was put; then it goes to the dead letters, or fails."),
    setting("dead_letters", DEAD_LETTERS,
        doc="Where records go that could not be put: as `KinesisSpout` has it. None: they fail."),
    setting("close_timeout_seconds", seconds(0), 30.0,
        doc="How long `close` goes on sending if it is not told another time."),
)  # fmt: skip
"""In the order of the documentation."""

PRODUCER_SETTINGS: Final = {option.setting: option for option in PRODUCES}
"""What `KinesisProducer` takes, by name."""
