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
_COLUMN: Final = choice("encryptionType", "millisBehindLatest", "subSequenceNumber", "explicitHashKey")

POSITIONS: Final = under(
    Topic.RUN,
    setting("initial_position", RUN_START, "latest", has_argument=True,
        elsewhere=("KCL initialPositionInStream", "Lambda StartingPosition", "Spark startingPosition"),
        topic=Topic.FIRST,
        doc="Where the application's first start begins; later starts continue from its progress."),
    setting("start_again", RUN_START, None,
        doc="Where the application begins again, once for each `deployment`."),
    setting("deployment", text("a name of at most 200 characters", ".{1,200}"), None,
        doc="The release or commit for which `start_again` counts."),
    setting("until", RUN_END, None, has_argument=True,
        doc="Where the run ends: it handles what arrived before this time, before its start (latest), or "
            "before each shard's position in JSON, and ends when that is finished and stored."),
    option("initialPosition", STREAM_READ, START, "latest",
        aliases=("startingPosition", "kinesis.startingPosition"),
        elsewhere=("KCL initialPositionInStream",), topic=Topic.FIRST,
        doc="Where a query without a checkpoint begins."),
    option("startingPosition", BATCH_READ, START, "trim_horizon", setting="initial_position",
        aliases=("initialPosition", "kinesis.startingPosition"),
        elsewhere=("KCL initialPositionInStream",),
        topic=Topic.FIRST, doc="Where the read begins; not latest."),
    option("endingPosition", BATCH_READ, END, "latest", topic=Topic.FIRST,
        doc="Where the read ends: before a time or AT_SEQUENCE_NUMBER, behind AFTER_SEQUENCE_NUMBER; "
            "latest is the time of load()."),
    shared("fail_on_data_loss", FLAG, True, name="failOnDataLoss", uses=READS,
        aliases=("kinesis.failOnDataLoss",),
        doc="End with an error where retention can have taken unread records: behind a position or checkpoint (in "
            "a batch read also a time), or a whole shard; and where a stream was made again. false: log, count, "
            "and go on at the oldest record or with the shard's children. A shard gone before its first read, "
            "within a day of a start at trim_horizon, is no loss."),
)  # fmt: skip

FETCHES: Final = under(
    Topic.READING,
    shared("max_records_per_fetch", whole(1, 10_000), 10_000, uses=READS,
        aliases=("kinesis.getRecords.numberOfRecordsPerFetch", "kinesis.executor.maxRecordPerRead"),
        elsewhere=("KCL maxRecords",),
        doc="Records in one GetRecords call."),
    shared("max_fetch_bytes_per_second", rate(1_000, 2 * MEGABYTE), 2 * MEGABYTE, name="maxFetchRate", uses=READS,
        doc="How fast to read a shard. AWS gives 2 MB/s to all its pollers: lower it where others poll."),
    shared("max_total_fetch_bytes_per_second", rate(1_000), None, name="maxTotalFetchRate", uses=READS,
        unset="no limit",
        doc="How fast to read all shards together, by all members and executors."),
    shared("fetch_period_seconds", seconds(0.2), 0.2, name="minFetchPeriod", uses=READS,
        aliases=("kinesis.getRecords.fetchIntervalMs",),
        doc="The least pause between two reads of a shard. AWS gives 5 a second to all its pollers: raise "
            "it where others poll."),
    shared("deaggregate", FLAG, True, uses=READS, has_argument=True,
        doc="Take aggregated (KPL) records apart into their user records; false: leave them as they are."),
    setting("poll_interval_seconds", seconds(0.2), 0.4,
        elsewhere=("KCL idleTimeBetweenReadsInMillis",),
        doc="The pause between reads of a shard at its tip. AWS allows 5 a second."),
    setting("idle_poll_interval_seconds", seconds(0), 1.0,
        doc="The longest pause between reads of a shard while no records arrive."),
    setting("shard_list_interval_seconds", seconds(above=0), 10.0,
        elsewhere=("KCL shardSyncIntervalMillis",),
        doc="How often to list the shards, to notice resharding."),
    setting("max_buffered_bytes", size(10 * MIB), 256 * MIB,
        topic=Topic.AMOUNTS, doc="Data that the driver keeps for retries and read-ahead, over all shards."),
    option("idleFetchPeriod", STREAM_READ, seconds(0.2), 1.0, setting="idle_fetch_period_seconds",
        doc="The longest pause between reads of a shard while no records arrive."),
    option("shardFetchInterval", STREAM_READ, seconds(0.1), 10.0, setting="shard_list_seconds",
        aliases=("kinesis.describeShardInterval", "kinesis.client.describeShardInterval"),
        elsewhere=("KCL shardSyncIntervalMillis",),
        doc="How often to list the shards. The reader also notices a reshard at the end of the parents."),
    option("fetchThreads", STREAM_READ, whole(1, 1024), 8, aliases=("kinesis.checkNewRecordThreads",),
        doc="How many shards to read at a time."),
    option("maxBufferedBytes", STREAM_READ, size(20 * MIB), 256 * MIB, aliases=("fetchBufferSize",),
        topic=Topic.AMOUNTS, doc="How much the driver reads ahead, over all shards; it pauses when that is "
            "full."),
    shared("consumer_mode", _MODE, "polling", uses=STREAM_READ, aliases=("kinesis.consumerType",),
        elsewhere=("KCL retrievalMode",),
        doc="`polling` (GetRecords), or `efo`, enhanced fan-out: Kinesis pushes records "
            "(SubscribeToShard), which costs money. See Fan-out."),
    option("consumerMode", BATCH_READ, _BATCH_MODE, "polling", aliases=("kinesis.consumerType",),
        doc="A batch read polls."),
    option("consumerName", STREAM_READ, _CONSUMER_NAME, aliases=("kinesis.consumerName",),
        elsewhere=("KCL consumerName",),
        doc="The registered consumer; required with `consumer_mode` efo."),
    setting("consumer_name", _CONSUMER_NAME, None, unset="the application's name",
        elsewhere=("KCL consumerName",),
        doc="With `consumer_mode` efo: the registered consumer, which the application's members share."),
)  # fmt: skip

BATCHES: Final = under(
    Topic.AMOUNTS,
    option("shardsPerTask", READS, whole(1), unset="as bytesPerTask says; 8 in a batch read",
        doc="Shards that one Spark task reads."),
    option("bytesPerTask", STREAM_READ, size(1), 8 * MIB,
        doc="How much data one Spark task gets before another is made."),
    option("maxRecordsPerTrigger", STREAM_READ, whole(1), unset="no limit",
        doc="Records in a micro-batch, over all shards."),
    option("maxBytesPerTrigger", STREAM_READ, size(1), unset="no limit",
        doc="Bytes in a micro-batch, over all shards; one record always fits."),
    option("minRecordsPerTrigger", STREAM_READ, whole(1), unset="one",
        doc="Records to wait for before a micro-batch is made, for at most `max_trigger_delay_seconds`."),
    option("maxTriggerDelay", STREAM_READ, seconds(0.001), 900.0, setting="max_trigger_delay_seconds",
        doc="The longest wait for `min_records_per_trigger`."),
    option("maxArrivalSkew", STREAM_READ, seconds(0), 0.0, setting="max_arrival_skew_seconds",
        doc="While a backlog is read: how much earlier a record of a later batch may have arrived than one "
            "of this batch. With 0s a watermark drops nothing that was only unread. Raise it so that small "
            "shards wait less for large ones."),
    option("extraColumns", READS, names(_COLUMN), unset="none",
        topic=Topic.RUN, doc="Columns in addition to the usual six."),
    option("logLevel", STREAM_READ, choice("debug", "info", "warning", "error"), "warning", topic=Topic.MONITORING,
        doc="The least that the reader logs. It is a process of Spark's, and prints where Spark does."),
    option("pageServerHost", STREAM_READ,
        text("a host's name or address, no port", r"[A-Za-z0-9_.-]{1,253}|[0-9A-Fa-f:.]{2,45}"),
        setting="page_host", unset="SPARK_LOCAL_IP, else the driver machine's address", topic=Topic.MONITORING,
        doc="The name or address at which executors reach the driver's machine, for what was read ahead."),
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
        doc="When a record counts as finished: once acked or dead-lettered (at_least_once), before it is "
            "handed out (at_most_once), or as it is handed out (none). Only the first retries."),
    setting("retry_limit", whole(0), 3, has_argument=True, or_none=True,
        elsewhere=("Lambda MaximumRetryAttempts",),
        topic=Topic.FIRST, doc="How often to retry a failed record; 0: never, none: for ever."),
    setting("retry_backoff_seconds", seconds(0), 1.0, doc="The delay before the first retry."),
    setting("retry_backoff_multiplier", number(1), 2.0,
        doc="The factor by which the delay grows with each retry."),
    setting("retry_backoff_cap_seconds", seconds(0), 60.0, doc="The longest delay before a retry."),
    setting("retry_jitter", number(0, 1), 0.1,
        doc="The random share of a delay, which spreads retries out."),
    setting("order", choice("unordered", "key", "shard"), "unordered", has_argument=True,
        doc="What waits for a failed record: nothing, later records of its partition key, or its whole "
            "shard."),
    setting("maximum_record_age_seconds", seconds(above=0), None,
        elsewhere=("Lambda MaximumRecordAgeInSeconds",),
        unset="for ever",
        doc="How long after its arrival a record may be delivered, retries included. Not "
            "checked while the handler seems to be at fault."),
    setting("expired_records", choice("dead_letter", "skip"), "dead_letter",
        doc="Dead-letter records older than `maximum_record_age_seconds`, or skip and count them."),
    setting("concurrency", whole(1, 1_000), 1, has_argument=True,
        elsewhere=("Lambda ParallelizationFactor",), topic=Topic.AMOUNTS,
        doc="Records of a shard that foreach_record handles at a time: in threads, or in an event loop if "
            "the handler is an `async def`. Raise it for handlers that wait for others."),
    setting("record_timeout_seconds", seconds(above=0), None, unset="for ever",
        doc="How long foreach_record's handler may take for a record before that counts as failed. At "
            "most half of `message_timeout_seconds`."),
    setting("message_timeout_seconds", seconds(above=0), 300.0, or_none=True,
        doc="How long a record may go without ack or fail before it counts as failed; none: for ever. "
            "Longer than your slowest handler."),
    setting("max_spared_seconds", seconds(0), None, unset="600, with `until` 0",
        doc="How long no record is given up, and deliveries slow down, while nearly all fail alike, so that the "
            "handler seems to be at fault. 0: each failure counts."),
)  # fmt: skip

RATES: Final = under(
    Topic.AMOUNTS,
    setting("max_deliveries_per_second", _RATE, None, unset="no limit",
        doc="Deliveries a second by this consumer, retries included; less than 1: one in several seconds."),
    setting("max_total_deliveries_per_second", _RATE, None, unset="no limit",
        doc="Deliveries a second by all members of the application together."),
)  # fmt: skip

LIMITS: Final = under(
    Topic.AMOUNTS,
    setting("max_pending", whole(1), 20_000, doc="Records of a shard that may be emitted and not finished."),
    setting("max_holes", whole(1), 2_000,
        doc="Finished runs beyond a shard's checkpoint before its reading pauses."),
    setting("max_records_per_slice", whole(1), 100_000,
        doc="Records of one shard in a micro-batch, at most."),
    setting("max_bytes_per_slice", size(1), 64 * MIB,
        doc="Bytes of one shard in a micro-batch; one page may go beyond."),
    setting("shards_per_task", whole(1), 8, doc="Shards that one Spark task reads at a time."),
    setting("max_concurrent_batches", whole(1), 2,
        doc="Micro-batches, over different shards, that may run at a time."),
    setting("max_batch_seconds", seconds(0), 5.0,
        doc="How long a micro-batch goes on handling records; at most twice that, and one read."),
    setting("long_task_seconds", seconds(0), 10.0,
        doc="While records come slowly: how long a Spark task stays, for one micro-batch after another; 0: "
            "each is a Spark job. For foreach_record and foreach_arrow; needs two cores."),
    setting("commit_interval_seconds", seconds(above=0), 1.0,
        doc="How often to write progress to ZooKeeper."),
    setting("stop_timeout_seconds", seconds(0), 30.0,
        doc="How long a stop waits for records in flight; the others are delivered again."),
    setting("dead_letters", DEAD_LETTERS, has_argument=True,
        elsewhere=("Lambda OnFailure",),
        unset="`.kinesis-spout/<app>/<stream>/dead-letters`", topic=Topic.FIRST,
        doc="Where records go that were given up."),
)  # fmt: skip
"""Bounds of what is in flight, and of how long things take."""

MONITORING: Final = under(
    Topic.MONITORING,
    setting("http", _ADDRESS, None, has_argument=True, unset="nowhere",
        doc="Where to answer /livez, /readyz, /metrics and /status over HTTP, for probes and monitors. "
            "Spouts of one process may share an address."),
    setting("stalled_after_seconds", seconds(above=0), 8.0,
        doc="How long a shard may have records to deliver and deliver or finish none before the spout is "
            "not ready. Longer than your handler's slowest call; a full micro-batch has its own time."),
    setting("tracing", FLAG, False,
        doc="An OpenTelemetry span for each record that carries its producer's trace context, linked to it "
            "(aggregated ones: see Trace). Needs `kinesis-spout[otel]`."),
)  # fmt: skip
"""Ways in which others see that it works."""
