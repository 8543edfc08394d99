"""Options that are out of place: Spark's own, which pass by, and others, which are refused with a hint."""

from typing import Final

from kinesis_spout.settings.option import Use

OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
"""In lower case. Spark puts them among the options of a streaming write, for itself."""

OF_TABLES: Final = frozenset(
    {"provider", "owner", "location", "comment", "collation", "external", "is_managed_location", "table_type"}
)
"""In lower case. Spark's own properties of a table, which it puts among its options."""

_NO_PATH: Final = "Kinesis has no paths; name the stream with the option streamName or streamARN instead"
_CONSUMER: Final = "with consumerMode efo, the registered consumer is named by consumerName"
_KEPT: Final = "a consumer stays registered until `kinesis-spout fan-out deregister` ends it; leave it out"
_LOOKED_UP: Final = "a consumer is looked up when a subscription is refused; leave it out"
_PER_SHARD: Final = "a micro-batch is bounded as a whole; use maxRecordsPerTrigger or maxBytesPerTrigger"
_NO_METADATA: Final = (
    "progress is kept in the query's own checkpoint, nothing else needs a place; leave it out"
)
_RETRIES: Final = "throttles and failures of Kinesis are waited out by themselves; leave it out"
_CREDENTIALS: Final = (
    "credentials are found by boto3's rules (environment, profile, instance role), or given as awsProfile, as "
    "awsAccessKey and awsSecretKey, or as roleArn"
)

HINTS: Final = {
    "guarantee": "what is guaranteed is Spark's own, by the query's checkpoint and its sink; leave it out",
    "path": _NO_PATH,
    "paths": _NO_PATH,
    "consumernameprefix": _CONSUMER,
    "consumerrefreshinterval": _LOOKED_UP,
    "registeredconsumerid": _CONSUMER,
    "registeredconsumeridtype": _CONSUMER,
    "requireconsumerderegistration": _KEPT,
    "deregisterconsumertimeouts": _KEPT,
    "kinesis.subscribetoshard.timeoutsec": _RETRIES,
    "kinesis.subscribetoshard.maxretries": _RETRIES,
    "kinesis.maxfetchrecordspershard": _PER_SHARD,
    "kinesis.maxfetchtimepershardsec": _PER_SHARD,
    "kinesis.executor.maxfetchtimeinms": _PER_SHARD,
    "kinesis.executor.maxfetchrecordspershard": _PER_SHARD,
    "maxfetchduration": _PER_SHARD,
    "kinesis.metadatacommittertype": _NO_METADATA,
    "kinesis.metadatapath": _NO_METADATA,
    "kinesis.dynamodb.tablename": _NO_METADATA,
    "kinesis.minbatchestoretain": _NO_METADATA,
    "kinesis.clientnumretries": _RETRIES,
    "kinesis.clientretryintervalsms": _RETRIES,
    "kinesis.clientmaxretryintervalms": _RETRIES,
    "kinesis.client.numretries": _RETRIES,
    "kinesis.client.retryintervalms": _RETRIES,
    "kinesis.client.maxretryintervalms": _RETRIES,
    "kinesis.credentialproviderclass": _CREDENTIALS,
    "kinesis.credentialproviderparam": _CREDENTIALS,
    "awsuseinstanceprofile": _CREDENTIALS,
    "servicecredential": _CREDENTIALS,
    "kinesis.sink.recordttl": "no record is dropped; deliveryTimeout says when its task fails instead",
}
"""By the option in lower case."""

INSTEAD: Final = {
    Use.STREAM_READ: "a streaming read goes on from initialPosition until it is stopped",
    Use.BATCH_READ: "a batch read is one plan, from startingPosition to endingPosition",
    Use.WRITE: "a write goes by the columns data, partitionKey and stream",
}
"""What a use has instead of another use's options."""
