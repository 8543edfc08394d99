"""Options that do not belong here: Spark's are ignored, other sources' are refused with a hint."""

from typing import Final

from kinesis_spout.settings.option import Use

OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
"""In lower case. Spark puts them among the options of a streaming write, for itself."""

OF_TABLES: Final = frozenset(
    {"provider", "owner", "location", "comment", "collation", "external", "is_managed_location", "table_type"}
)
"""In lower case. Spark's own properties of a table, which it puts among its options."""

_NO_PATH: Final = "name the stream with the option streamName or streamARN"
_CONSUMER: Final = "with consumerMode efo, name the registered consumer with consumerName"
_KEPT: Final = "`kinesis-spout fan-out deregister` ends a registered consumer; leave it out"
_LOOKED_UP: Final = "the reader looks a consumer up when Kinesis refuses a subscription; leave it out"
_PER_SHARD: Final = "use maxRecordsPerTrigger or maxBytesPerTrigger, which bound a whole micro-batch"
_NO_METADATA: Final = "the query's own checkpoint keeps the progress; leave it out"
_RETRIES: Final = "throttles and failures of Kinesis are tried again without limit; leave it out"
_CREDENTIALS: Final = (
    "use awsProfile, awsAccessKey with awsSecretKey, or roleArn; else boto3 finds credentials by its rules"
)
_ONE_CLIENT: Final = "a process keeps one client for each way to Kinesis; leave it out"
_ALL_LISTED: Final = "each listing asks for all that one answer can hold; leave it out"
_TASKS: Final = "use bytesPerTask and shardsPerTask, which make the tasks"
_NO_BLOCKS: Final = "use bytesPerTask, by which a batch is planned"
_PAUSE: Final = "use minFetchPeriod, the pause between two reads of a shard"
_OF_A_CALL: Final = "use maxRecordsPerFetch, the limit of one GetRecords call"
_LISTING: Final = "use shardFetchInterval, the time between two lists of the shards"
_NO_EMPTY: Final = "no micro-batch is made while nothing comes; leave it out"
_TIMESTAMP: Final = "the column approximateArrivalTimestamp has the arrival; leave it out"
_LAG: Final = "the lag is in the query's progress; leave it out"
_START: Final = "use startingPosition, or initialPosition in a streaming read"
_FORMAT: Final = "parse the bytes of the column data with Spark's functions, such as from_json"
_FULL_CALLS: Final = "a task puts full calls and waits for all of them; leave it out"
_NO_TTL: Final = "use deliveryTimeout, after which the task fails; no record is dropped"


def _hints(why: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, why)


REFUSED: Final = {
    **_hints(
        "the guarantee is Spark's own, by the query's checkpoint and its sink; leave it out", "guarantee"
    ),
    **_hints(_NO_PATH, "path", "paths"),
    # Databricks
    **_hints(_CONSUMER, "consumerNamePrefix", "registeredConsumerId", "registeredConsumerIdType"),
    **_hints(_LOOKED_UP, "consumerRefreshInterval"),
    **_hints(_KEPT, "requireConsumerDeregistration", "deregisterConsumerTimeoutS"),
    **_hints(_PER_SHARD, "maxFetchDuration"),
    **_hints(_CREDENTIALS, "awsUseInstanceProfile", "serviceCredential"),
    **_hints(_ONE_CLIENT, "reuseKinesisClient"),
    **_hints(_RETRIES, "clientRetries"),
    **_hints(_ALL_LISTED, "maxShardsPerDescribe"),
    **_hints(_TASKS, "maxPartitions"),
    **_hints(_NO_BLOCKS, "coalesceThresholdBlockSize", "coalesceBinSize"),
    # awslabs
    **_hints(_RETRIES, "kinesis.subscribeToShard.timeoutSec", "kinesis.subscribeToShard.maxRetries"),
    **_hints(_PER_SHARD, "kinesis.maxFetchRecordsPerShard", "kinesis.maxFetchTimePerShardSec"),
    **_hints(_NO_METADATA, "kinesis.metadataCommitterType", "kinesis.metadataPath"),
    **_hints(_NO_METADATA, "kinesis.dynamodb.tableName", "kinesis.minBatchesToRetain"),
    **_hints(_NO_METADATA, "kinesis.metadataNumRetries", "kinesis.metadataRetryIntervalsMs"),
    **_hints(_NO_METADATA, "kinesis.metadataMaxRetryIntervalMs"),
    **_hints(_RETRIES, "kinesis.clientNumRetries", "kinesis.clientRetryIntervalsMs"),
    **_hints(_RETRIES, "kinesis.clientMaxRetryIntervalMs"),
    **_hints(_CREDENTIALS, "kinesis.credentialProviderClass", "kinesis.credentialProviderParam"),
    **_hints(_FULL_CALLS, "kinesis.sink.flushWaitTimeMs", "kinesis.sink.recordMaxBufferedTimeMs"),
    **_hints(_FULL_CALLS, "kinesis.sink.maxConnections"),
    **_hints(_NO_TTL, "kinesis.sink.recordTtl"),
    # qubole, and AWS Glue without the prefix
    **_hints(_PER_SHARD, "kinesis.executor.maxFetchTimeInMs", "maxFetchTimeInMs"),
    **_hints(_PER_SHARD, "kinesis.executor.maxFetchRecordsPerShard", "maxFetchRecordsPerShard"),
    **_hints(_PAUSE, "kinesis.executor.addIdleTimeBetweenReads", "addIdleTimeBetweenReads"),
    **_hints(_PAUSE, "kinesis.executor.idleTimeBetweenReadsInMs", "idleTimeBetweenReadsInMs"),
    **_hints(_RETRIES, "kinesis.client.numRetries", "numRetries"),
    **_hints(_RETRIES, "kinesis.client.retryIntervalMs", "retryIntervalMs"),
    **_hints(_RETRIES, "kinesis.client.maxRetryIntervalMs", "maxRetryIntervalMs"),
    **_hints(_NO_EMPTY, "kinesis.client.avoidEmptyBatches", "avoidEmptyBatches"),
    **_hints(_FULL_CALLS, "kinesis.executor.recordMaxBufferedTime", "kinesis.executor.maxConnections"),
    **_hints(_FULL_CALLS, "kinesis.executor.flushWaitTimeMillis"),
    **_hints(_NO_TTL, "kinesis.executor.recordTtl"),
    **_hints(_OF_A_CALL, "maxRecordPerRead"),
    **_hints(_LISTING, "describeShardInterval"),
    **_hints(_TIMESTAMP, "addRecordTimestamp"),
    **_hints(_LAG, "emitConsumerLagMetrics"),
    **_hints(_START, "startingTimestamp"),
    **_hints(_CONSUMER, "fanoutConsumerArn"),
    **_hints(_FORMAT, "classification", "delimiter", "inferSchema"),
}
"""Why an option of another source is refused, and what to do here."""

HINTS: Final = {name.lower(): why for name, why in REFUSED.items()}
"""The same, by the option in lower case."""

INSTEAD: Final = {
    Use.STREAM_READ: "a streaming read goes on from initialPosition until it is stopped",
    Use.BATCH_READ: "a batch read is one plan, from startingPosition to endingPosition",
    Use.WRITE: "a write goes by the columns data, partitionKey and stream",
}
"""The words about what a use has instead of another use's options."""
