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


DEAD_LETTERS: Final = text(
    "a directory, file:///directory, s3://bucket/prefix, hdfs://host/directory, gs://bucket/directory or "
    "kinesis://stream",
    check=_dead_letters,
)

WRITES: Final = under(
    Topic.PUTTING,
    option("partitionKeyColumn", WRITE, text(), setting="partition_key", unset="partitionKey",
        topic=Topic.FIRST, doc="The column with the partition key."),
    option("maxRecordsPerCall", WRITE, whole(1, 500), 500, elsewhere=("KPL CollectionMaxCount",),
        doc="Records in one PutRecords call."),
    option("maxBytesPerCall", WRITE, size(MIB, 10 * MIB), 5 * MIB,
        elsewhere=("KPL CollectionMaxSize",),
        doc="Bytes in one PutRecords call. AWS takes 10 MiB; older endpoints take 5."),
    option("deliveryTimeout", WRITE, seconds(1), 300.0, setting="deadline_seconds", topic=Topic.RETRIES,
        doc="How long a shard may refuse all its records before the task fails."),
    option("order", WRITE, choice("unordered", "key"), "unordered", topic=Topic.RETRIES,
        doc="What happens to later rows when Kinesis refuses one. `unordered`: those of its call are put, "
            "also of its partition key. `key`: a row waits until the one before it of its key is on the "
            "stream, so a call has one row of each key: slow with few keys, unless `aggregation` puts "
            "several rows into one record."),
    option("deadLetters", WRITE, DEAD_LETTERS, unset="such a row fails the write",
        topic=Topic.FIRST, doc="Where rows go that Kinesis can never take (too large, no key). A directory "
            "is on the executor's own disk, unless all share it."),
    option("aggregation", WRITE, FLAG, False,
        aliases=("kinesis.sink.aggregationEnabled", "kinesis.executor.aggregationEnabled"),
        elsewhere=("KPL AggregationEnabled",),
        doc="Put several rows of one shard into one record, in the KPL's format. This library, the KCL, "
            "Firehose, and Lambda with AWS's modules take it apart. Without "
            "kinesis:ListShards each row is a record."),
    option("aggregationMaxSize", WRITE, size(KIB, MIB), 50 * KIB, setting="aggregate_bytes",
        elsewhere=("KPL AggregationMaxSize",),
        doc="Bytes in one such record; only with `aggregation`."),
)  # fmt: skip

PRODUCES: Final = under(
    Topic.PUTTING,
    setting("stream", STREAM, is_required=True,
        topic=Topic.FIRST, doc="The stream to put on."),
    *(option for option in CLIENT if option.is_setting),
    setting("order", choice("unordered", "key"), "unordered", topic=Topic.RETRIES,
        doc="`unordered`: several full calls at a time; a record that Kinesis refuses comes behind later "
            "ones of its partition key. `key`: a record is sent when the one before it of its key is on "
            "the stream, or given up."),
    setting("aggregation", FLAG, False,
        elsewhere=("KPL AggregationEnabled",),
        doc="Put several records of one shard into one, in the KPL's format. This library, the KCL, "
            "Firehose, and Lambda with AWS's modules take it apart. Needs kinesis:ListShards."),
    setting("aggregation_max_bytes", size(KIB, MIB), 50 * KIB,
        elsewhere=("KPL AggregationMaxSize",),
        doc="Bytes in one such record; only with `aggregation`."),
    setting("linger_seconds", seconds(0, 60), 0.05,
        elsewhere=("KPL RecordMaxBufferedTime",),
        doc="How long a record may wait for others to fill its call."),
    setting("max_records_per_call", whole(1, 500), 500, elsewhere=("KPL CollectionMaxCount",),
        doc="Records in one PutRecords call."),
    setting("max_bytes_per_call", size(MIB, 10 * MIB), 5 * MIB,
        elsewhere=("KPL CollectionMaxSize",),
        doc="Bytes in one PutRecords call. AWS takes 10 MiB; older endpoints take 5."),
    setting("max_concurrent_calls", whole(1, 64), 4, elsewhere=("KPL MaxConnections",),
        doc="Calls under way at a time."),
    setting("max_buffered_records", whole(1), 100_000,
        topic=Topic.AMOUNTS, doc="Records that may wait, those in calls included."),
    setting("max_buffered_bytes", size(MIB), 64 * MIB,
        topic=Topic.AMOUNTS, doc="Bytes of data and keys that may wait."),
    setting("when_full", choice("block", "refuse", "drop_oldest"), "block",
        doc="What `put` does when the buffer is full. `block`: waits up to `block_timeout_seconds`. "
            "`refuse`: raises `BufferFull`. `drop_oldest`: gives up the oldest record that is not in a "
            "call."),
    setting("block_timeout_seconds", seconds(0), 60.0,
        doc="How long `put` waits for room before it raises `BufferFull`."),
    setting("delivery_timeout_seconds", seconds(above=0), 120.0,
        elsewhere=("KPL RecordTtl",), topic=Topic.RETRIES,
        doc="How long to try a record, from its put; then it goes to the dead letters, or fails."),
    setting("dead_letters", DEAD_LETTERS, unset="such a record fails", topic=Topic.FIRST,
        doc="Where records go that could not be put."),
    setting("close_timeout_seconds", seconds(0), 30.0,
        doc="How long `close` goes on sending, unless its call says otherwise."),
    setting("tracing", FLAG, False, topic=Topic.MONITORING,
        doc="OpenTelemetry spans for the calls; with `aggregation` each record also carries the trace "
            "context of its put. Needs `kinesis-spout[otel]`."),
)  # fmt: skip
"""The calls of `KinesisProducer`, what it holds, and what it does when that is full."""

PRODUCER_SETTINGS: Final = {option.setting: option for option in PRODUCES}
