"""Options of a consumer's and a query's reads, and of what is done with the records."""

from typing import Final

from kinesis_spout.settings.grammar.shard_positions import END, RUN_END, RUN_START, START
from kinesis_spout.settings.grammar.value_types import (
    FLAG,
    MEGABYTE,
    MIB,
    choice,
    names,
    number,
    rate,
    seconds,
    size,
    text,
    whole,
)
from kinesis_spout.settings.option import (
    BATCH_READ,
    READS,
    STREAM_READ,
    Topic,
    option,
    setting,
    shared,
    under,
)
from kinesis_spout.settings.setting_messages import NotAllowed
from kinesis_spout.settings.table.writing import DEAD_LETTERS

_NO_FAN_OUT: Final = "a batch read asks for the records it wants, which nobody pushes"
_SYNONYMS: Final = {"getrecords": "polling", "subscribetoshard": "efo"}  # awslabs' words
_MODE: Final = choice("polling", "efo", synonyms=_SYNONYMS)
_BATCH_MODE: Final = choice(
    "polling",
    synonyms=_SYNONYMS,
    not_yet={"efo": _NO_FAN_OUT, "subscribetoshard": _NO_FAN_OUT},
)
_CONSUMER_NAME: Final = text("1 to 128 letters, digits, _, . and -", r"[a-zA-Z0-9_.-]{1,128}")
_LOSS: Final = (
    "Stop with an error when retention can have taken records before they were read: behind a position or a "
    "checkpoint, or with a whole shard. false: log and count each loss, and go on at the oldest record left, or "
    "with the shard's children."
)
_NO_LOSS: Final = (
    "trim_horizon asks for whatever is left: a shard that is gone before its first read, within a day of the "
    "start, is no loss."
)
_COLUMN: Final = choice("encryptionType", "millisBehindLatest", "subSequenceNumber", "explicitHashKey")

POSITIONS: Final = under(
    Topic.RUN,
    setting("initial_position", RUN_START, "latest", has_argument=True,
        elsewhere=("KCL initialPositionInStream", "Lambda StartingPosition", "Spark startingPosition"),
        topic=Topic.FIRST,
        doc="Where the first start of the application begins; later starts go on from progress. Shards that JSON "
            "does not name start at trim_horizon."),
    setting("start_again", RUN_START, None, has_argument=True,
        doc="Where the application begins again, once for each `deployment`."),
    setting("deployment", text("a name of at most 200 characters", ".{1,200}"), None, has_argument=True,
        doc="The name of the deployment for which `start_again` counts, such as a release or a commit."),
    setting("until", RUN_END, None, has_argument=True,
        doc="Where the run ends: what arrived before a time, or before the start (latest), or before a position "
            "for each shard in JSON. It ends by itself once all of that is finished and stored."),
    option("initialPosition", STREAM_READ, START, "latest",
        aliases=("startingPosition", "kinesis.startingPosition"),
        elsewhere=("KCL initialPositionInStream",), topic=Topic.FIRST,
        doc="Where a query begins that has no checkpoint yet. Shards that JSON does not name start at "
            "trim_horizon."),
    option("startingPosition", BATCH_READ, START, "trim_horizon", setting="initial_position",
        aliases=("initialPosition", "kinesis.startingPosition"),
        elsewhere=("KCL initialPositionInStream",),
        topic=Topic.FIRST, doc="Where the read begins; latest is refused. Shards that JSON does not name start at "
            "trim_horizon."),
    option("endingPosition", BATCH_READ, END, "latest", topic=Topic.FIRST,
        doc="Where the read ends: a time and AT_SEQUENCE_NUMBER are left out, AFTER_SEQUENCE_NUMBER is "
            "read. latest is the time of load()."),
    setting("fail_on_data_loss", FLAG, True,
        doc=f"{_LOSS} {_NO_LOSS}"),
    option("failOnDataLoss", READS, FLAG, True, aliases=("kinesis.failOnDataLoss",),
        doc=f"{_LOSS} A streaming read also stops where the stream was created anew, and a batch read where "
            f"`startingPosition` is a time behind the retention. {_NO_LOSS}"),
)  # fmt: skip

FETCHES: Final = under(
    Topic.READING,
    shared("max_records_per_fetch", whole(1, 10_000), 10_000, uses=READS,
        aliases=("kinesis.getRecords.numberOfRecordsPerFetch", "kinesis.executor.maxRecordPerRead"),
        elsewhere=("KCL maxRecords",),
        doc="The limit of one GetRecords call."),
    shared("max_fetch_bytes_per_second", rate(1_000, 2 * MEGABYTE), 2 * MEGABYTE, name="maxFetchRate", uses=READS,
        doc="How fast a shard is read; AWS allows 2 MB/s to all its pollers together."),
    shared("max_total_fetch_bytes_per_second", rate(1_000), None, name="maxTotalFetchRate", uses=READS,
        unset="no limit",
        doc="How fast all shards are read together, by all members and executors of the application."),
    shared("fetch_period_seconds", seconds(0.2), 0.2, name="minFetchPeriod", uses=READS,
        aliases=("kinesis.getRecords.fetchIntervalMs",),
        doc="The least pause between two reads of a shard, behind as at its tip; AWS allows 5 a second to all its "
            "pollers together."),
    shared("deaggregate", FLAG, True, uses=READS, has_argument=True,
        doc="Take aggregated (KPL) records apart: a record for each user record inside; false: as they are."),
    setting("poll_interval_seconds", seconds(0.2), 0.4,
        elsewhere=("KCL idleTimeBetweenReadsInMillis",),
        doc="The pause between reads of a shard at its tip; AWS allows 5 calls/s a shard."),
    setting("idle_poll_interval_seconds", seconds(0), 1.0,
        doc="The longest pause between polls of a shard while no records arrive."),
    setting("shard_list_interval_seconds", seconds(above=0), 10.0,
        elsewhere=("KCL shardSyncIntervalMillis",),
        doc="How often the stream's shards are listed, to notice resharding."),
    setting("max_buffered_bytes", size(10 * MIB), 256 * MIB,
        topic=Topic.AMOUNTS, doc="Data the driver keeps for retries and read-ahead, over all shards."),
    option("idleFetchPeriod", STREAM_READ, seconds(0.2), 1.0, setting="idle_fetch_period_seconds",
        doc="The longest pause between reads of a shard while no records arrive."),
    option("shardFetchInterval", STREAM_READ, seconds(0.1), 10.0, setting="shard_list_seconds",
        aliases=("kinesis.describeShardInterval", "kinesis.client.describeShardInterval"),
        elsewhere=("KCL shardSyncIntervalMillis",),
        doc="How often the shards are listed. A reshard is noticed without it, at the end of the parents."),
    option("fetchThreads", STREAM_READ, whole(1, 1024), 8, aliases=("kinesis.checkNewRecordThreads",),
        doc="How many shards are read at a time."),
    option("maxBufferedBytes", STREAM_READ, size(20 * MIB), 256 * MIB, aliases=("fetchBufferSize",),
        topic=Topic.AMOUNTS, doc="What the driver reads ahead, over all shards; reading pauses when it is full."),
    shared("consumer_mode", _MODE, "polling", uses=STREAM_READ, aliases=("kinesis.consumerType",),
        elsewhere=("KCL retrievalMode",),
        doc="How shards are read: polling (GetRecords), or efo, enhanced fan-out: Kinesis pushes records "
            "(SubscribeToShard), which costs money. See Fan-out."),
    option("consumerMode", BATCH_READ, _BATCH_MODE, "polling", aliases=("kinesis.consumerType",),
        doc="How shards are read: a batch read polls."),
    option("consumerName", STREAM_READ, _CONSUMER_NAME, aliases=("kinesis.consumerName",),
        elsewhere=("KCL consumerName",),
        doc="The registered consumer. Required with `consumer_mode` efo."),
    setting("consumer_name", _CONSUMER_NAME, None,
        elsewhere=("KCL consumerName",),
        doc="With `consumer_mode` efo: the registered consumer, which the members of an application share. "
            "Without it: the application's name."),
)  # fmt: skip

BATCHES: Final = under(
    Topic.AMOUNTS,
    option("shardsPerTask", READS, whole(1), unset="as bytesPerTask says; 8 in a batch read",
        doc="How many shards a Spark task reads."),
    option("bytesPerTask", STREAM_READ, size(1), 8 * MIB,
        doc="How much data a Spark task is given before another one is made."),
    option("maxRecordsPerTrigger", STREAM_READ, whole(1), unset="no limit",
        doc="Records in a micro-batch, over all shards."),
    option("maxBytesPerTrigger", STREAM_READ, size(1), unset="no limit",
        doc="Bytes in a micro-batch, over all shards; one record always fits."),
    option("minRecordsPerTrigger", STREAM_READ, whole(1), unset="one",
        doc="Records to wait for before a micro-batch is made, for at most `max_trigger_delay_seconds`."),
    option("maxTriggerDelay", STREAM_READ, seconds(0.001), 900.0, setting="max_trigger_delay_seconds",
        doc="The longest wait for `min_records_per_trigger`."),
    option("maxArrivalSkew", STREAM_READ, seconds(0), 0.0, setting="max_arrival_skew_seconds",
        doc="How much earlier than a record of this batch a record of a later batch may have arrived, while "
            "a backlog is read. With 0s a watermark drops nothing that was only unread; with more, "
            "shards with little in them wait less for those with much."),
    option("extraColumns", READS, names(_COLUMN), unset="none",
        topic=Topic.RUN, doc="Columns in addition to the usual six."),
    option("logLevel", STREAM_READ, choice("debug", "info", "warning", "error"), "warning", topic=Topic.MONITORING,
        doc="The least that the reader logs. It runs in a process of Spark, and prints where Spark does."),
    option("pageServerHost", STREAM_READ,
        text("a host's name or address, no port", r"[A-Za-z0-9_.-]{1,253}|[0-9A-Fa-f:.]{2,45}"),
        setting="page_host", unset="SPARK_LOCAL_IP, else the driver machine's address", topic=Topic.MONITORING,
        doc="The name or address at which executors reach the driver's machine, to take what was read ahead."),
)  # fmt: skip
"""The size of a micro-batch of ``format("kinesis")``."""


def _port(address: str) -> None:
    if int(address.rpartition(":")[2]) > 65_535:  # noqa: PLR2004 - of TCP
        raise NotAllowed("a port of at most 65535")


_ADDRESS: Final = text(
    "an address to listen on: host:port, for example 127.0.0.1:9464",
    r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}",
    _port,
)
_RATE: Final = number(above=0, at_most=1_000_000)

RETRIES: Final = under(
    Topic.RETRIES,
    setting("guarantee", choice("at_least_once", "at_most_once", "none"), "at_least_once", has_argument=True,
        doc="When a record counts as finished: once it is acked or dead-lettered; before it is handed out; "
            "or when it is handed out. Only the first of them retries."),
    setting("retry_limit", whole(0), 3, has_argument=True, or_none=True,
        elsewhere=("Lambda MaximumRetryAttempts",),
        topic=Topic.FIRST, doc="How often a failed record is tried again; 0: never, none: for ever."),
    setting("retry_backoff_seconds", seconds(0), 1.0, doc="The delay before the first retry."),
    setting("retry_backoff_multiplier", number(1), 2.0,
        doc="The factor by which the delay grows from retry to retry."),
    setting("retry_backoff_cap_seconds", seconds(0), 60.0, doc="The longest delay before a retry."),
    setting("retry_jitter", number(0, 1), 0.1,
        doc="The share of a delay that is random, so that retries spread out."),
    setting("order", choice("unordered", "key", "shard"), "unordered", has_argument=True,
        doc="What waits while a failed record waits: nothing, later records of its partition key, or its "
            "whole shard."),
    setting("maximum_record_age_seconds", seconds(above=0), None,
        elsewhere=("Lambda MaximumRecordAgeInSeconds",),
        doc="How long after its arrival a record may still be delivered, retries included; none: for ever. Not "
            "checked while the handler seems to be at fault."),
    setting("expired_records", choice("dead_letter", "skip"), "dead_letter",
        doc="What happens to a record older than `maximum_record_age_seconds`: it is dead-lettered, or "
            "skipped and counted."),
    setting("concurrency", whole(1, 1_000), 1, has_argument=True,
        elsewhere=("Lambda ParallelizationFactor",), topic=Topic.AMOUNTS,
        doc="Records of a shard that foreach_record handles at a time, by threads, or in an event loop if the "
            "handler is an `async def`."),
    setting("record_timeout_seconds", seconds(above=0), None,
        doc="How long a handler of foreach_record may take for a record, before that counts as failed; none: "
            "as long as it likes. At most half of `message_timeout_seconds`."),
    setting("message_timeout_seconds", seconds(above=0), 300.0, or_none=True,
        doc="After this long without an ack or fail a record counts as failed; none: never."),
    setting("max_spared_seconds", seconds(0), None, unset="600, with `until` and `run --until-caught-up` 0",
        doc="How long a record is not given up, at most, while other records fail as it does, so that the handler "
            "seems to be at fault and deliveries slow down; 0: each failure counts, nothing slows down."),
)  # fmt: skip

RATES: Final = under(
    Topic.AMOUNTS,
    setting("max_deliveries_per_second", _RATE, None,
        doc="How often records are delivered by this consumer, first deliveries and retries together; less than 1 "
            "is once in several seconds."),
    setting("max_total_deliveries_per_second", _RATE, None,
        doc="How often records are delivered by all members of the application together."),
)  # fmt: skip

LIMITS: Final = under(
    Topic.AMOUNTS,
    setting("max_pending", whole(1), 20_000, doc="Records per shard that may be emitted and not finished."),
    setting("max_holes", whole(1), 2_000,
        doc="Finished runs beyond a shard's checkpoint before its reading pauses."),
    setting("max_records_per_slice", whole(1), 100_000,
        doc="Records of one shard in one micro-batch, at most."),
    setting("max_bytes_per_slice", size(1), 64 * MIB,
        doc="Bytes of one shard in one micro-batch; one page may go beyond."),
    setting("shards_per_task", whole(1), 8, doc="Shards that one Spark task reads concurrently."),
    setting("max_concurrent_batches", whole(1), 2,
        doc="Micro-batches, over different shards, that may run at the same time."),
    setting("max_batch_seconds", seconds(0), 5.0,
        doc="How long a micro-batch goes on handling records; at most twice that, and one read."),
    setting("long_task_seconds", seconds(0), 10.0,
        doc="While records come slowly, one Spark task stays for so long and is handed one micro-batch after "
            "another; 0: each micro-batch is a Spark job. Of foreach_record and foreach_arrow; needs two cores."),
    setting("commit_interval_seconds", seconds(above=0), 1.0,
        doc="How often progress is written to ZooKeeper."),
    setting("stop_timeout_seconds", seconds(0), 30.0,
        doc="How long a stop waits for records in flight, before it leaves them for later."),
    setting("dead_letters", DEAD_LETTERS, has_argument=True,
        elsewhere=("Lambda OnFailure",),
        topic=Topic.FIRST, doc="Where records that were given up are kept: a directory, file:///directory, "
            "s3://bucket/prefix, hdfs://host/directory, gs://bucket/directory or kinesis://stream; none: "
            "`.kinesis-spout/<app>/<stream>/dead-letters`."),
)  # fmt: skip
"""Bounds of what is in flight, and of how long things take."""

MONITORING: Final = under(
    Topic.MONITORING,
    setting("http", _ADDRESS, None, has_argument=True,
        doc="Answer /livez, /readyz, /metrics and /status here, over HTTP, for probes and monitors; none: "
            "nowhere. Spouts of one process may share an address."),
    setting("health_file", text("the path of a file"), None,
        doc="A file that is touched about once a second while the spout is alive, for probes without HTTP."),
    setting("stalled_after_seconds", seconds(above=0), 8.0,
        doc="A shard that has records to deliver, and none of them delivered or finished for this long, makes the "
            "spout not ready. A full micro-batch has its own time; longer than your slowest call of a handler."),
    setting("tracing", FLAG, False,
        doc="A span of OpenTelemetry for each record that carries the trace context of its producer (of an "
            "aggregated record, see Trace), linked to it. Needs `kinesis-spout[otel]`."),
)  # fmt: skip
"""Ways in which others see that it works."""
