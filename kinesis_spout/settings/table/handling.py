"""The options of a spout's records: retries, what may be under way, how long things take, dead letters."""

from typing import Final

from kinesis_spout.settings.option import Option
from kinesis_spout.settings.table.writing import DEAD_LETTERS
from kinesis_spout.settings.value_types import BYTES, MIB, SECONDS, Choice, Number

RETRIES: Final = (
    Option(
        setting="retry_limit",
        is_setting=True,
        has_argument=True,
        type=Number(at_least=0),
        default=3,
        or_none=True,
        doc="How often a failed record is tried again; 0: never, none: for ever.",
    ),
    Option(
        setting="retry_backoff_seconds",
        is_setting=True,
        type=Number(python=float, unit=SECONDS, at_least=0),
        default=1.0,
        doc="The delay before the first retry.",
    ),
    Option(
        setting="retry_backoff_multiplier",
        is_setting=True,
        type=Number(python=float, at_least=1),
        default=2.0,
        doc="By what the delay grows from retry to retry.",
    ),
    Option(
        setting="retry_backoff_cap_seconds",
        is_setting=True,
        type=Number(python=float, unit=SECONDS, at_least=0),
        default=60.0,
        doc="The longest delay before a retry.",
    ),
    Option(
        setting="retry_jitter",
        is_setting=True,
        type=Number(python=float, at_least=0, at_most=1),
        default=0.1,
        doc="The share of a delay that is random, so that retries spread out.",
    ),
    Option(
        setting="order",
        is_setting=True,
        has_argument=True,
        type=Choice(choices=("unordered", "key", "shard")),
        default="unordered",
        doc="Who waits while a failed record waits: nobody, later records of its partition key, or its whole "
        "shard.",
    ),
    Option(
        setting="message_timeout_seconds",
        is_setting=True,
        type=Number(python=float, unit=SECONDS, above=0),
        default=300.0,
        or_none=True,
        doc="After this long without an ack or fail a record counts as failed; none: never.",
    ),
    Option(
        setting="breaker_failure_ratio",
        is_setting=True,
        type=Number(python=float, above=0, at_most=1),
        default=0.9,
        or_none=True,
        doc="Pause, and give nothing up, once this share of the last outcomes failed; none: never.",
    ),
    Option(
        setting="breaker_window",
        is_setting=True,
        type=Number(at_least=1),
        default=1_000,
        doc="The last outcomes that `breaker_failure_ratio` looks at, once there are 100 (or so many).",
    ),
)
"""What happens to a record that fails."""

LIMITS: Final = (
    Option(
        setting="max_pending",
        is_setting=True,
        type=Number(at_least=1),
        default=20_000,
        doc="Records per shard that may be emitted and not finished.",
    ),
    Option(
        setting="max_holes",
        is_setting=True,
        type=Number(at_least=1),
        default=2_000,
        doc="Finished runs beyond a shard's checkpoint before its reading pauses.",
    ),
    Option(
        setting="max_records_per_slice",
        is_setting=True,
        type=Number(at_least=1),
        default=100_000,
        doc="Records of one shard in one micro-batch, at most.",
    ),
    Option(
        setting="max_bytes_per_slice",
        is_setting=True,
        type=Number(unit=BYTES, at_least=1),
        default=64 * MIB,
        doc="Bytes of one shard in one micro-batch; one page may go beyond.",
    ),
    Option(
        setting="shards_per_task",
        is_setting=True,
        type=Number(at_least=1),
        default=8,
        doc="Shards that one Spark task reads concurrently.",
    ),
    Option(
        setting="max_concurrent_batches",
        is_setting=True,
        type=Number(at_least=1),
        default=2,
        doc="Micro-batches, over different shards, that may run at the same time.",
    ),
    Option(
        setting="max_batch_seconds",
        is_setting=True,
        type=Number(python=float, unit=SECONDS, at_least=0),
        default=5.0,
        doc="How long a micro-batch goes on handling records; at most twice that, and one read.",
    ),
    Option(
        setting="commit_interval_seconds",
        is_setting=True,
        type=Number(python=float, unit=SECONDS, above=0),
        default=1.0,
        doc="How often progress is written to ZooKeeper.",
    ),
    Option(
        setting="stop_timeout_seconds",
        is_setting=True,
        type=Number(python=float, unit=SECONDS, at_least=0),
        default=30.0,
        doc="How long a stop waits for what is in flight, before it leaves it for later.",
    ),
    Option(
        setting="dead_letters",
        is_setting=True,
        has_argument=True,
        type=DEAD_LETTERS,
        doc="Where records that were given up are kept: a directory, file:///directory, s3://bucket/prefix, "
        "kinesis://stream, or any Hadoop URL (hdfs://, s3a://); none: "
        "`.kinesis-spout/<app>/<stream>/dead-letters`.",
    ),
)
"""How much may be under way, and how long things take."""
