"""The options of writes: those of ``format("kinesis")``, and those of `KinesisProducer`."""

import re
from typing import Final
from urllib.parse import urlsplit

from kinesis_spout.settings.grammar.stream_names import STREAM_NAME
from kinesis_spout.settings.grammar.value_types import FLAG, KIB, MIB, choice, seconds, size, text, whole
from kinesis_spout.settings.option import WRITE, Topic, option, setting, under
from kinesis_spout.settings.setting_messages import NotAllowed
from kinesis_spout.settings.table.connection import CLIENT, STREAM


def _dead_letters(url: str) -> None:
    scheme, separator, rest = url.partition("://")
    if not separator and re.match(r"[a-z][a-z0-9+.-]+:/", url):
        raise NotAllowed("two slashes after the scheme, or a path without one")
    try:
        password = urlsplit(url).password
    except ValueError as error:
        raise NotAllowed("a path, or a URL that can be parsed") from error
    if password is not None:
        raise NotAllowed("a URL without a password: it would show in logs and messages")
    if separator and scheme == "file" and not rest.startswith("/"):
        raise NotAllowed(f"three slashes before a local directory: file:///{rest}")
    if separator and scheme == "kinesis" and not re.fullmatch(STREAM_NAME, rest):
        raise NotAllowed("kinesis://<stream name>")


DEAD_LETTERS: Final = text(check=_dead_letters)

WRITES: Final = under(
    Topic.PUTTING,
    option("partitionKeyColumn", WRITE, text(), setting="partition_key", unset="partitionKey",
        topic=Topic.FIRST, doc="The column whose text is the partition key."),
    option("maxRecordsPerCall", WRITE, whole(1, 500), 500, elsewhere=("KPL CollectionMaxCount",),
        doc="Records in one PutRecords call."),
    option("maxBytesPerCall", WRITE, size(MIB, 10 * MIB), 5 * MIB,
        elsewhere=("KPL CollectionMaxSize",),
        doc="Bytes in one PutRecords call. AWS takes 10 MiB; older endpoints take 5."),
    option("deliveryTimeout", WRITE, seconds(1), 300.0, setting="deadline_seconds", topic=Topic.RETRIES,
        doc="How long a shard may refuse everything, while its records are tried again, before the task fails."),
    option("order", WRITE, choice("unordered", "key"), "unordered", topic=Topic.RETRIES,
        doc="Which order of a task's rows is kept when Kinesis refuses some. `unordered`: a refused "
            "row may come behind later ones of its partition key, of the same call. `key`: a row waits "
            "until the one before it of its key is on the stream, so a call has one row of each key; with "
            "few keys that is slow, unless `aggregation` puts several rows into one record."),
    option("deadLetters", WRITE, DEAD_LETTERS, unset="such a row fails the write",
        topic=Topic.FIRST, doc="Where rows go that Kinesis can never take (too large, no key): a directory or "
            "file:///directory, on the executor's own disk or one that all share, s3://bucket/prefix, "
            "hdfs://host/directory, gs://bucket/directory or kinesis://stream."),
    option("aggregation", WRITE, FLAG, False,
        aliases=("kinesis.sink.aggregationEnabled", "kinesis.executor.aggregationEnabled"),
        elsewhere=("KPL AggregationEnabled",),
        doc="Several rows of one shard in one record, in the KPL's format, for consumers that take them "
            "apart: this library, the KCL, Firehose, Lambda with AWS' aggregation modules. "
            "Without the permission kinesis:ListShards each row is a record."),
    option("aggregationMaxSize", WRITE, size(KIB, MIB), 50 * KIB, setting="aggregate_bytes",
        elsewhere=("KPL AggregationMaxSize",),
        doc="Bytes in one such record; 50k is the KPL's default. Only with `aggregation`."),
)  # fmt: skip

PRODUCES: Final = under(
    Topic.PUTTING,
    setting("stream", STREAM, is_required=True,
        topic=Topic.FIRST, doc="The Kinesis stream to put on: its name or its ARN."),
    *(option for option in CLIENT if option.is_setting),
    setting("order", choice("unordered", "key"), "unordered", topic=Topic.RETRIES,
        doc="`unordered`: calls are full, and several are under way; a record that Kinesis refuses comes behind "
            "later ones of its partition key. `key`: a record is sent when the one before it of its key is on the "
            "stream, or given up."),
    setting("aggregation", FLAG, False,
        elsewhere=("KPL AggregationEnabled",),
        doc="Several records of one shard in one, in the KPL's format, for consumers that take them apart: this "
            "library, the KCL, Firehose, Lambda with AWS' aggregation modules. Needs kinesis:ListShards."),
    setting("aggregation_max_bytes", size(KIB, MIB), 50 * KIB,
        elsewhere=("KPL AggregationMaxSize",),
        doc="Bytes in one aggregated record; with `aggregation` only."),
    setting("linger_seconds", seconds(0, 60), 0.05,
        elsewhere=("KPL RecordMaxBufferedTime",),
        doc="How long a record may wait for others to fill its call."),
    setting("max_records_per_call", whole(1, 500), 500, elsewhere=("KPL CollectionMaxCount",),
        doc="Records in one call of PutRecords."),
    setting("max_bytes_per_call", size(MIB, 10 * MIB), 5 * MIB,
        elsewhere=("KPL CollectionMaxSize",),
        doc="Bytes in one call of PutRecords. AWS takes 10 MiB; older endpoints take 5."),
    setting("max_concurrent_calls", whole(1, 64), 4, elsewhere=("KPL MaxConnections",),
        doc="How many calls may be under way at once."),
    setting("max_buffered_records", whole(1), 100_000,
        topic=Topic.AMOUNTS, doc="How many records may wait, those in calls included."),
    setting("max_buffered_bytes", size(MIB), 64 * MIB,
        topic=Topic.AMOUNTS, doc="How many bytes of data and keys may wait."),
    setting("when_full", choice("block", "refuse", "drop_oldest"), "block",
        doc="What `put` does when the buffer is full. `block`: waits for room, up to `block_timeout_seconds`. "
            "`refuse`: raises `BufferFull`. `drop_oldest`: gives up the oldest record that is not in a call."),
    setting("block_timeout_seconds", seconds(0), 60.0,
        doc="How long `put` waits for room, before it raises `BufferFull`."),
    setting("delivery_timeout_seconds", seconds(above=0), 120.0,
        elsewhere=("KPL RecordTtl",), topic=Topic.RETRIES,
        doc="How long a record is tried for, from when it was put; then it goes to the dead letters, or fails."),
    setting("dead_letters", DEAD_LETTERS, topic=Topic.FIRST,
        doc="Where records go that could not be put: as `KinesisSpout` has it. None: they fail."),
    setting("close_timeout_seconds", seconds(0), 30.0,
        doc="How long `close` goes on sending, unless it is given another time."),
    setting("tracing", FLAG, False, topic=Topic.MONITORING,
        doc="Spans of OpenTelemetry for the calls; with `aggregation` each record also carries the trace context "
            "that was current at its put, with its data. Needs `kinesis-spout[otel]`."),
)  # fmt: skip
"""The calls of `KinesisProducer`, what it holds, and what it does when that is full."""

PRODUCER_SETTINGS: Final = {option.setting: option for option in PRODUCES}
