"""Every option of ``format("kinesis")``: checks, defaults and the documentation's tables all come from here.

The first spelling is that of Databricks' Kinesis source where it has the option. The others are those of
awslabs' connector (``kinesis.…``) and of the older qubole one.
"""

from typing import Final

from kinesis_spout.structured.options.specs import Kind, OptionSpec, Use

_EVERYWHERE: Final = frozenset(Use)
_READS: Final = frozenset({Use.STREAM_READ, Use.BATCH_READ})
_STREAM_READ: Final = frozenset({Use.STREAM_READ})
_BATCH_READ: Final = frozenset({Use.BATCH_READ})
_WRITE: Final = frozenset({Use.WRITE})

_STREAMS: Final = (
    OptionSpec(
        name="streamName",
        aliases=("kinesis.streamName",),
        uses=_READS,
        kind=Kind.LIST,
        doc="The streams to read, by name. Either this or streamARN is required.",
    ),
    OptionSpec(
        name="streamARN",
        uses=_READS,
        kind=Kind.LIST,
        doc="The streams to read, by ARN: also those of other accounts.",
    ),
    OptionSpec(
        name="streamName",
        aliases=("kinesis.streamName",),
        uses=_WRITE,
        kind=Kind.TEXT,
        unset="the column `stream` says",
        doc="The stream to write to, by name.",
    ),
    OptionSpec(
        name="streamARN",
        uses=_WRITE,
        kind=Kind.TEXT,
        doc="The stream to write to, by ARN.",
    ),
)

_CLIENT: Final = (
    OptionSpec(
        name="region",
        aliases=("kinesis.region", "kinesis.kinesisRegion", "regionName"),
        uses=_EVERYWHERE,
        kind=Kind.TEXT,
        unset="the ARN's, the endpoint's, else the environment's",
        doc="The AWS region of the streams.",
    ),
    OptionSpec(
        name="endpointUrl",
        aliases=("endpoint", "kinesis.endpointUrl"),
        uses=_EVERYWHERE,
        kind=Kind.URL,
        unset="the region's",
        doc="A Kinesis endpoint: a VPC endpoint, or an emulator.",
    ),
    OptionSpec(
        name="awsAccessKey",
        aliases=("awsAccessKeyId", "kinesis.awsAccessKeyId"),
        uses=_EVERYWHERE,
        kind=Kind.TEXT,
        unset="boto3's own rules",
        secret=True,
        doc="Static credentials; with awsSecretKey.",
    ),
    OptionSpec(
        name="awsSecretKey",
        aliases=("kinesis.awsSecretKey",),
        uses=_EVERYWHERE,
        kind=Kind.TEXT,
        secret=True,
        doc="The secret that belongs to awsAccessKey.",
    ),
    OptionSpec(
        name="sessionToken",
        aliases=("kinesis.sessionToken",),
        uses=_EVERYWHERE,
        kind=Kind.TEXT,
        secret=True,
        doc="The token of temporary credentials; with awsAccessKey.",
    ),
    OptionSpec(
        name="roleArn",
        aliases=("kinesis.stsRoleArn", "awsSTSRoleARN"),
        uses=_EVERYWHERE,
        kind=Kind.TEXT,
        doc="A role to assume; its session renews itself.",
    ),
    OptionSpec(
        name="roleSessionName",
        aliases=("kinesis.stsSessionName", "awsSTSSessionName"),
        uses=_EVERYWHERE,
        kind=Kind.TEXT,
        unset="kinesis-spout",
        doc="The session's name in CloudTrail; with roleArn.",
    ),
    OptionSpec(
        name="roleExternalId",
        uses=_EVERYWHERE,
        kind=Kind.TEXT,
        secret=True,
        doc="The external id that the role demands; with roleArn.",
    ),
    OptionSpec(
        name="stsEndpoint",
        aliases=("kinesis.stsEndpointUrl",),
        uses=_EVERYWHERE,
        kind=Kind.URL,
        unset="the region's",
        doc="Where the role is assumed; with roleArn.",
    ),
)

_POSITIONS: Final = (
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
        "latest is the time of planning.",
    ),
)

_FETCHES: Final = (
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

_BATCHES: Final = (
    OptionSpec(
        name="shardsPerTask",
        uses=_READS,
        kind=Kind.COUNT,
        unset="as bytes and cores suggest",
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
        name="extraColumns",
        uses=_READS,
        kind=Kind.LIST,
        unset="none",
        choices=("encryptionType", "millisBehindLatest"),
        doc="Columns beside the usual six.",
    ),
    OptionSpec(
        name="pageServerHost",
        uses=_STREAM_READ,
        kind=Kind.TEXT,
        unset="found from the route to the executors",
        doc="The driver's name or address, as the executors reach it to take what was read ahead.",
    ),
)

_PROGRESS: Final = (
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

_WRITES: Final = (
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
        doc="How long a record is tried again before its task fails.",
    ),
    OptionSpec(
        name="deadLetters",
        uses=_WRITE,
        kind=Kind.TEXT,
        unset="such a row fails the write",
        doc="Where rows go that Kinesis can never take (too large, no key): a directory, file:///directory, "
        "kinesis://stream, or any Hadoop URL.",
    ),
    OptionSpec(
        name="aggregation",
        aliases=("kinesis.sink.aggregationEnabled", "kinesis.executor.aggregationEnabled"),
        uses=_WRITE,
        kind=Kind.FLAG,
        default="false",
        doc="Several rows in one record, as the KPL writes them: not there yet, only false is taken.",
    ),
)

OPTIONS: Final = (*_STREAMS, *_CLIENT, *_POSITIONS, *_FETCHES, *_BATCHES, *_PROGRESS, *_WRITES)
"""In the order of the documentation. A name may be there twice, for different uses."""
