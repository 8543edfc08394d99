"""The options of a spout's records: retries, limits in flight, durations, dead letters."""

from typing import Final

from kinesis_spout.settings.grammar.value_types import MIB, choice, number, seconds, size, text, whole
from kinesis_spout.settings.messages import NotAllowed
from kinesis_spout.settings.option import setting
from kinesis_spout.settings.table.writing import DEAD_LETTERS


def _port(address: str) -> None:
    if int(address.rpartition(":")[2]) > 65_535:  # noqa: PLR2004 - of TCP
        raise NotAllowed("a port of at most 65535")


_ADDRESS: Final = text(
    "an address to listen on: host:port, for example 127.0.0.1:9464",
    r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}",
    _port,
)
_RATE: Final = number(above=0, at_most=1_000_000)

RETRIES: Final = (
    setting("guarantee", choice("at_least_once", "at_most_once", "none"), "at_least_once", has_argument=True,
        doc="When a record counts as finished: once it is acked or dead-lettered; before it is handed out; "
            "or when it is handed out. Only the first of them retries."),
    setting("retry_limit", whole(0), 3, has_argument=True, or_none=True,
        doc="How often a failed record is tried again; 0: never, none: for ever."),
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
        doc="How long after its arrival a record may still be delivered, retries included; none: for ever. Not "
            "checked while practically every record fails."),
    setting("expired_records", choice("dead_letter", "skip"), "dead_letter",
        doc="What happens to a record older than `maximum_record_age_seconds`: it is dead-lettered, or "
            "skipped and counted."),
    setting("concurrency", whole(1, 1_000), 1, has_argument=True,
        doc="Records of a shard that foreach_record handles at a time, by threads, or in an event loop if the "
            "handler is an `async def`."),
    setting("record_timeout_seconds", seconds(above=0), None,
        doc="How long a handler of foreach_record may take for a record, before that counts as failed; none: "
            "as long as it likes. At most half of `message_timeout_seconds`."),
    setting("message_timeout_seconds", seconds(above=0), 300.0, or_none=True,
        doc="After this long without an ack or fail a record counts as failed; none: never."),
    setting("breaker_failure_ratio", number(at_most=1, above=0), 0.9, or_none=True,
        doc="Pause, and give nothing up, once this share of the last outcomes failed, or 50 in a row; "
            "none: never."),
    setting("breaker_window", whole(1), 1_000,
        doc="How many of the last outcomes `breaker_failure_ratio` looks at. It waits for the first 100, or "
            "for as many as this if it is less."),
)  # fmt: skip

RATES: Final = (
    setting("max_deliveries_per_second", _RATE, None,
        doc="How often records are delivered by this consumer, first deliveries and retries together; less than 1 "
            "is once in several seconds."),
    setting("max_total_deliveries_per_second", _RATE, None,
        doc="How often records are delivered by all members of the application together."),
)  # fmt: skip

LIMITS: Final = (
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
    setting("commit_interval_seconds", seconds(above=0), 1.0,
        doc="How often progress is written to ZooKeeper."),
    setting("stop_timeout_seconds", seconds(0), 30.0,
        doc="How long a stop waits for records in flight, before it leaves them for later."),
    setting("dead_letters", DEAD_LETTERS, has_argument=True,
        doc="Where records that were given up are kept: a directory, file:///directory, "
            "s3://bucket/prefix, kinesis://stream, or any Hadoop URL (hdfs://, s3a://); none: "
            "`.kinesis-spout/<app>/<stream>/dead-letters`."),
)  # fmt: skip
"""How much may be in flight, and how long things take."""

MONITORING: Final = (
    setting("http", _ADDRESS, None, has_argument=True,
        doc="Answer /livez, /readyz, /metrics and /status here, over HTTP, for probes and monitors; none: "
            "nowhere. Spouts of one process may share an address."),
    setting("health_file", text("the path of a file"), None,
        doc="A file that is touched about once a second while the spout is alive, for probes without HTTP."),
    setting("stalled_after_seconds", seconds(above=0), 8.0,
        doc="A shard that has records to deliver, and none of them delivered or finished for this long, makes the "
            "spout not ready. Longer than the slowest micro-batch."),
)  # fmt: skip
"""How others see that it works."""
