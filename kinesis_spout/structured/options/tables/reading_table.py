"""The options of reading: where from, how fast, how much."""

from typing import Final

from kinesis_spout.structured.options.tables.specs import Kind, OptionSpec, Use

_READS: Final = frozenset({Use.STREAM_READ, Use.BATCH_READ})
_STREAM_READ: Final = frozenset({Use.STREAM_READ})
_BATCH_READ: Final = frozenset({Use.BATCH_READ})

POSITIONS: Final = (
    OptionSpec(
        name="initialPosition",
        aliases=("startingPosition", "kinesis.startingPosition"),
        uses=_STREAM_READ,
        kind=Kind.START,
        default="latest",
        doc="Where a query begins that has no checkpoint yet. Shards that JSON does not name start at "
        "trim_horizon.",
    ),
    OptionSpec(
        name="startingPosition",
        aliases=("initialPosition", "kinesis.startingPosition"),
        uses=_BATCH_READ,
        kind=Kind.START,
        default="trim_horizon",
        doc="Where the read begins; latest is refused. Shards that JSON does not name start at trim_horizon.",
    ),
    OptionSpec(
        name="endingPosition",
        uses=_BATCH_READ,
        kind=Kind.END,
        default="latest",
        doc="Where the read ends: a time and AT_SEQUENCE_NUMBER are left out, AFTER_SEQUENCE_NUMBER is read. "
        "latest is the time of load().",
    ),
)
"""Where a read begins and ends."""

FETCHES: Final = (
    OptionSpec(
        name="maxRecordsPerFetch",
        aliases=("kinesis.getRecords.numberOfRecordsPerFetch", "kinesis.executor.maxRecordPerRead"),
        uses=_READS,
        kind=Kind.COUNT,
        default="10000",
        at_least="1",
        at_most="10000",
        doc="The limit of one GetRecords call.",
    ),
    OptionSpec(
        name="maxFetchRate",
        uses=_READS,
        kind=Kind.RATE,
        default="2.0",
        at_least="0.001",
        at_most="2.0",
        doc="How fast a shard is read; AWS allows 2 MB/s to all its pollers together.",
    ),
    OptionSpec(
        name="minFetchPeriod",
        aliases=("kinesis.getRecords.fetchIntervalMs",),
        uses=_STREAM_READ,
        kind=Kind.DURATION,
        default="200ms",
        at_least="200ms",
        doc="The pause between reads of a shard; AWS allows five a second to all its pollers together.",
    ),
    OptionSpec(
        name="idleFetchPeriod",
        uses=_STREAM_READ,
        kind=Kind.DURATION,
        default="1s",
        at_least="200ms",
        doc="How rare reads of a shard get while nothing comes.",
    ),
    OptionSpec(
        name="shardFetchInterval",
        aliases=("kinesis.describeShardInterval", "kinesis.client.describeShardInterval"),
        uses=_STREAM_READ,
        kind=Kind.DURATION,
        default="10s",
        at_least="100ms",
        doc="How often the shards are listed. A reshard is noticed without it, at the end of the parents.",
    ),
    OptionSpec(
        name="fetchThreads",
        aliases=("kinesis.checkNewRecordThreads",),
        uses=_STREAM_READ,
        kind=Kind.COUNT,
        default="8",
        at_least="1",
        at_most="1024",
        doc="Threads of the driver that read shards ahead.",
    ),
    OptionSpec(
        name="fetchProcesses",
        uses=_STREAM_READ,
        kind=Kind.COUNT,
        default="0",
        at_least="0",
        at_most="256",
        doc="Processes of the driver that fetch and decode for these threads, for more than some hundred shards.",
    ),
    OptionSpec(
        name="maxBufferedBytes",
        aliases=("fetchBufferSize",),
        uses=_STREAM_READ,
        kind=Kind.SIZE,
        default="256m",
        at_least="20m",
        doc="What the driver reads ahead, over all shards; reading pauses when it is full.",
    ),
    OptionSpec(
        name="consumerMode",
        aliases=("kinesis.consumerType",),
        uses=_READS,
        kind=Kind.CHOICE,
        choices=("polling",),
        default="polling",
        doc="How shards are read. Enhanced fan-out (efo) is not there yet.",
    ),
    OptionSpec(
        name="failOnDataLoss",
        aliases=("kinesis.failOnDataLoss",),
        uses=_READS,
        kind=Kind.FLAG,
        default="true",
        doc="Stop with an error when records were trimmed unread, or the stream was made anew; false: say so "
        "and go on at the oldest record.",
    ),
)
"""How shards are read."""

BATCHES: Final = (
    OptionSpec(
        name="shardsPerTask",
        uses=_READS,
        kind=Kind.COUNT,
        unset="as bytesPerTask says; 8 in a batch read",
        at_least="1",
        doc="How many shards a Spark task reads.",
    ),
    OptionSpec(
        name="bytesPerTask",
        uses=_STREAM_READ,
        kind=Kind.SIZE,
        default="8m",
        at_least="1",
        doc="How much data a Spark task is given before another one is made.",
    ),
    OptionSpec(
        name="maxRecordsPerTrigger",
        uses=_STREAM_READ,
        kind=Kind.COUNT,
        at_least="1",
        unset="no limit",
        doc="Records in a micro-batch, over all shards.",
    ),
    OptionSpec(
        name="maxBytesPerTrigger",
        uses=_STREAM_READ,
        kind=Kind.SIZE,
        at_least="1",
        unset="no limit",
        doc="Bytes in a micro-batch, over all shards; one record always fits.",
    ),
    OptionSpec(
        name="minRecordsPerTrigger",
        uses=_STREAM_READ,
        kind=Kind.COUNT,
        at_least="1",
        unset="one",
        doc="Records to wait for before a micro-batch is made, for at most maxTriggerDelay.",
    ),
    OptionSpec(
        name="maxTriggerDelay",
        uses=_STREAM_READ,
        kind=Kind.DURATION,
        default="15m",
        at_least="1ms",
        doc="The longest wait for minRecordsPerTrigger.",
    ),
    OptionSpec(
        name="maxArrivalSkew",
        uses=_STREAM_READ,
        kind=Kind.DURATION,
        default="0s",
        at_least="0s",
        doc="How much earlier than a record of a batch one may have arrived that comes in a later batch, while a "
        "backlog is read. With 0s a watermark drops nothing that was only unread; with more, shards with little "
        "in them wait less for those with much.",
    ),
    OptionSpec(
        name="extraColumns",
        uses=_READS,
        kind=Kind.LIST,
        unset="none",
        choices=("encryptionType", "millisBehindLatest"),
        doc="Columns beside the usual six.",
    ),
    OptionSpec(
        name="logLevel",
        uses=_STREAM_READ,
        kind=Kind.CHOICE,
        choices=("debug", "info", "warning", "error"),
        default="warning",
        doc="The least that the reader logs. It runs in a process of Spark, and prints where Spark does.",
    ),
    OptionSpec(
        name="pageServerHost",
        uses=_STREAM_READ,
        kind=Kind.TEXT,
        unset="SPARK_LOCAL_IP, else the address of the host name",
        doc="The name or address at which executors reach the driver's machine, to take what was read ahead.",
    ),
)
"""What a micro-batch is made of."""

PROGRESS: Final = (
    OptionSpec(
        name="checkpointApp",
        uses=_STREAM_READ,
        kind=Kind.TEXT,
        doc="Publish the query's progress in ZooKeeper under this application's name; with zookeeper.",
    ),
    OptionSpec(
        name="zookeeper",
        uses=_STREAM_READ,
        kind=Kind.TEXT,
        doc="`host:port,host:port[/chroot]`, or `embedded`; with checkpointApp.",
    ),
    OptionSpec(
        name="zookeeperRoot",
        uses=_STREAM_READ,
        kind=Kind.TEXT,
        default="kinesis_spout",
        doc="The node that all applications' nodes are below.",
    ),
    OptionSpec(
        name="progressFrom",
        uses=_STREAM_READ,
        kind=Kind.CHOICE,
        choices=("spark", "zookeeper"),
        default="spark",
        doc="Which progress wins at the start, where both are there.",
    ),
)
"""Where progress is published beside the checkpoint of the query."""
