"""The options of writing."""

from typing import Final

from kinesis_spout.structured.options.tables.specs import Kind, OptionSpec, Use

_WRITE: Final = frozenset({Use.WRITE})

WRITES: Final = (
    OptionSpec(
        name="partitionKeyColumn",
        uses=_WRITE,
        kind=Kind.TEXT,
        unset="partitionKey",
        doc="The column whose text is the partition key.",
    ),
    OptionSpec(
        name="maxRecordsPerCall",
        uses=_WRITE,
        kind=Kind.COUNT,
        default="500",
        at_least="1",
        at_most="500",
        doc="Records in one PutRecords call.",
    ),
    OptionSpec(
        name="maxBytesPerCall",
        uses=_WRITE,
        kind=Kind.SIZE,
        default="5m",
        at_least="1m",
        at_most="10m",
        doc="Bytes in one PutRecords call. AWS takes 10 MiB; older endpoints take 5.",
    ),
    OptionSpec(
        name="deliveryTimeout",
        uses=_WRITE,
        kind=Kind.DURATION,
        default="5m",
        at_least="1s",
        doc="How long a shard may take nothing, while its records are tried again, before the task fails.",
    ),
    OptionSpec(
        name="order",
        uses=_WRITE,
        kind=Kind.CHOICE,
        default="unordered",
        choices=("unordered", "key"),
        doc="What holds of the order of a task's rows when Kinesis refuses some. `unordered`: a refused row may "
        "come behind later ones of its partition key, of the same call. `key`: a row waits until the one before "
        "it of its key is on the stream, so a call has one row of each key; with few keys that is slow, unless "
        "`aggregation` puts several rows into one record.",
    ),
    OptionSpec(
        name="deadLetters",
        uses=_WRITE,
        kind=Kind.TEXT,
        unset="such a row fails the write",
        doc="Where rows go that Kinesis can never take (too large, no key): a directory or file:///directory, on "
        "the executor's own disk or one that all share, s3://bucket/prefix, or kinesis://stream.",
    ),
    OptionSpec(
        name="aggregation",
        aliases=("kinesis.sink.aggregationEnabled", "kinesis.executor.aggregationEnabled"),
        uses=_WRITE,
        kind=Kind.FLAG,
        default="false",
        doc="Several rows of one shard in one record, in the KPL's format, for consumers that take them apart: "
        "the KCL, Firehose, Lambda with AWS' aggregation modules. Reads of this library do not yet. Without the "
        "permission kinesis:ListShards each row is a record.",
    ),
    OptionSpec(
        name="aggregationMaxSize",
        uses=_WRITE,
        kind=Kind.SIZE,
        default="50k",
        at_least="1k",
        at_most="1m",
        doc="Bytes in one such record; 50k is the KPL's default. Only with `aggregation`.",
    ),
)
"""How rows become records."""
