"""The options of reading: where from, how fast, how much."""

from typing import Final

from kinesis_spout.settings.option import Option, Use
from kinesis_spout.settings.shard_positions import EndText, StartText
from kinesis_spout.settings.table.connection import READS, STREAM_READ
from kinesis_spout.settings.value_types import (
    BYTES,
    MEGABYTE,
    MIB,
    RATE,
    SECONDS,
    Choice,
    Flag,
    Names,
    Number,
    PositionText,
    Text,
)

_BATCH_READ: Final = frozenset({Use.BATCH_READ})
_NO_AGGREGATES: Final = "aggregated records are not taken apart yet"
_NO_FAN_OUT: Final = "enhanced fan-out is not there yet"

POSITIONS: Final = (
    Option(
        setting="initial_position",
        is_setting=True,
        has_argument=True,
        type=PositionText(),
        default="latest",
        doc="Where the first start of the application begins; later starts go on from progress.",
    ),
    Option(
        setting="start",
        name="initialPosition",
        aliases=("startingPosition", "kinesis.startingPosition"),
        uses=STREAM_READ,
        type=StartText(),
        default="latest",
        doc="Where a query begins that has no checkpoint yet. Shards that JSON does not name start at "
        "trim_horizon.",
    ),
    Option(
        setting="start",
        name="startingPosition",
        aliases=("initialPosition", "kinesis.startingPosition"),
        uses=_BATCH_READ,
        type=StartText(),
        default="trim_horizon",
        doc="Where the read begins; latest is refused. Shards that JSON does not name start at trim_horizon.",
    ),
    Option(
        setting="end",
        name="endingPosition",
        uses=_BATCH_READ,
        type=EndText(),
        default="latest",
        doc="Where the read ends: a time and AT_SEQUENCE_NUMBER are left out, AFTER_SEQUENCE_NUMBER is read. "
        "latest is the time of load().",
    ),
    Option(
        setting="fail_on_data_loss",
        is_setting=True,
        type=Flag(),
        default=True,
        doc="Stop with an error when records were trimmed unread; false: report it and go on at the oldest "
        "record.",
    ),
    Option(
        setting="fail_on_data_loss",
        name="failOnDataLoss",
        aliases=("kinesis.failOnDataLoss",),
        uses=READS,
        type=Flag(),
        default=True,
        doc="Stop with an error when records were trimmed unread, or the stream was made anew; false: say so "
        "and go on at the oldest record.",
    ),
)
"""Where a read begins and ends."""

FETCHES: Final = (
    Option(
        setting="max_records_per_fetch",
        is_setting=True,
        name="maxRecordsPerFetch",
        aliases=("kinesis.getRecords.numberOfRecordsPerFetch", "kinesis.executor.maxRecordPerRead"),
        uses=READS,
        type=Number(at_least=1, at_most=10_000),
        default=10_000,
        doc="The limit of one GetRecords call.",
    ),
    Option(
        setting="poll_interval_seconds",
        is_setting=True,
        type=Number(python=float, unit=SECONDS, at_least=0.2),
        default=0.4,
        doc="The pause between reads of a shard at its tip; AWS allows 5 calls/s a shard.",
    ),
    Option(
        setting="idle_poll_interval_seconds",
        is_setting=True,
        type=Number(python=float, unit=SECONDS, at_least=0),
        default=1.0,
        doc="How rare polls of a shard get on Spark, while nothing comes.",
    ),
    Option(
        setting="shard_list_interval_seconds",
        is_setting=True,
        type=Number(python=float, unit=SECONDS, above=0),
        default=10.0,
        doc="How often the stream's shards are listed, to notice resharding.",
    ),
    Option(
        setting="max_buffered_bytes",
        is_setting=True,
        type=Number(unit=BYTES, at_least=10 * MIB),
        default=256 * MIB,
        doc="Data the driver keeps for retries and read-ahead, over all shards.",
    ),
    Option(
        setting="max_fetch_bytes_per_second",
        name="maxFetchRate",
        uses=READS,
        type=Number(unit=RATE, at_least=1_000, at_most=2 * MEGABYTE),
        default=2 * MEGABYTE,
        doc="How fast a shard is read; AWS allows 2 MB/s to all its pollers together.",
    ),
    Option(
        setting="fetch_period_seconds",
        name="minFetchPeriod",
        aliases=("kinesis.getRecords.fetchIntervalMs",),
        uses=STREAM_READ,
        type=Number(python=float, unit=SECONDS, at_least=0.2),
        default=0.2,
        doc="The pause between reads of a shard; AWS allows five a second to all its pollers together.",
    ),
    Option(
        setting="idle_fetch_period_seconds",
        name="idleFetchPeriod",
        uses=STREAM_READ,
        type=Number(python=float, unit=SECONDS, at_least=0.2),
        default=1.0,
        doc="How rare reads of a shard get while nothing comes.",
    ),
    Option(
        setting="shard_list_seconds",
        name="shardFetchInterval",
        aliases=("kinesis.describeShardInterval", "kinesis.client.describeShardInterval"),
        uses=STREAM_READ,
        type=Number(python=float, unit=SECONDS, at_least=0.1),
        default=10.0,
        doc="How often the shards are listed. A reshard is noticed without it, at the end of the parents.",
    ),
    Option(
        setting="fetch_threads",
        name="fetchThreads",
        aliases=("kinesis.checkNewRecordThreads",),
        uses=STREAM_READ,
        type=Number(at_least=1, at_most=1024),
        default=8,
        doc="Threads of the driver that read shards ahead.",
    ),
    Option(
        setting="fetch_processes",
        name="fetchProcesses",
        uses=STREAM_READ,
        type=Number(at_least=0, at_most=256),
        default=0,
        doc="Processes of the driver that fetch and decode for these threads, for more than some hundred shards.",
    ),
    Option(
        setting="max_buffered_bytes",
        name="maxBufferedBytes",
        aliases=("fetchBufferSize",),
        uses=STREAM_READ,
        type=Number(unit=BYTES, at_least=20 * MIB),
        default=256 * MIB,
        doc="What the driver reads ahead, over all shards; reading pauses when it is full.",
    ),
    Option(
        setting="consumer_mode",
        name="consumerMode",
        aliases=("kinesis.consumerType",),
        uses=READS,
        type=Choice(
            choices=("polling",),
            synonyms={"getrecords": "polling"},  # awslabs' word
            not_yet={"efo": _NO_FAN_OUT, "subscribetoshard": _NO_FAN_OUT},
        ),
        default="polling",
        doc="How shards are read. Enhanced fan-out (efo) is not there yet.",
    ),
)
"""How shards are read."""

BATCHES: Final = (
    Option(
        setting="shards_per_task",
        name="shardsPerTask",
        uses=READS,
        type=Number(at_least=1),
        unset="as bytesPerTask says; 8 in a batch read",
        doc="How many shards a Spark task reads.",
    ),
    Option(
        setting="bytes_per_task",
        name="bytesPerTask",
        uses=STREAM_READ,
        type=Number(unit=BYTES, at_least=1),
        default=8 * MIB,
        doc="How much data a Spark task is given before another one is made.",
    ),
    Option(
        setting="max_records_per_trigger",
        name="maxRecordsPerTrigger",
        uses=STREAM_READ,
        type=Number(at_least=1),
        unset="no limit",
        doc="Records in a micro-batch, over all shards.",
    ),
    Option(
        setting="max_bytes_per_trigger",
        name="maxBytesPerTrigger",
        uses=STREAM_READ,
        type=Number(unit=BYTES, at_least=1),
        unset="no limit",
        doc="Bytes in a micro-batch, over all shards; one record always fits.",
    ),
    Option(
        setting="min_records_per_trigger",
        name="minRecordsPerTrigger",
        uses=STREAM_READ,
        type=Number(at_least=1),
        unset="one",
        doc="Records to wait for before a micro-batch is made, for at most `max_trigger_delay_seconds`.",
    ),
    Option(
        setting="max_trigger_delay_seconds",
        name="maxTriggerDelay",
        uses=STREAM_READ,
        type=Number(python=float, unit=SECONDS, at_least=0.001),
        default=900.0,
        doc="The longest wait for `min_records_per_trigger`.",
    ),
    Option(
        setting="max_arrival_skew_seconds",
        name="maxArrivalSkew",
        uses=STREAM_READ,
        type=Number(python=float, unit=SECONDS, at_least=0),
        default=0.0,
        doc="How much earlier than a record of a batch one may have arrived that comes in a later batch, while a "
        "backlog is read. With 0s a watermark drops nothing that was only unread; with more, shards with little "
        "in them wait less for those with much.",
    ),
    Option(
        setting="extra_columns",
        name="extraColumns",
        uses=READS,
        type=Names(
            of=Choice(
                choices=("encryptionType", "millisBehindLatest"),
                not_yet={"subsequencenumber": _NO_AGGREGATES, "explicithashkey": _NO_AGGREGATES},
            )
        ),
        unset="none",
        doc="Columns beside the usual six.",
    ),
    Option(
        setting="log_level",
        name="logLevel",
        uses=STREAM_READ,
        type=Choice(choices=("debug", "info", "warning", "error")),
        default="warning",
        doc="The least that the reader logs. It runs in a process of Spark, and prints where Spark does.",
    ),
    Option(
        setting="page_host",
        name="pageServerHost",
        uses=STREAM_READ,
        type=Text(
            words="a host's name or address, no port",
            pattern=r"[A-Za-z0-9_.-]{1,253}|[0-9A-Fa-f:.]{2,45}",
        ),
        unset="found from the route to the executors",
        doc="The driver's name or address, as the executors reach it to take what was read ahead.",
    ),
    Option(
        setting="progress_from",
        name="progressFrom",
        uses=STREAM_READ,
        type=Choice(choices=("spark", "zookeeper")),
        default="spark",
        doc="Which progress wins at the start, where both are there.",
    ),
)
"""What a micro-batch of ``format("kinesis")`` is made of, and where it begins."""
