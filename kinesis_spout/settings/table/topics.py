"""What the documentation groups the options by: the headings, and the settings under each, in their order there.

A name is the row's ``setting``, so that the option of ``format("kinesis")`` stands under the same heading.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from kinesis_spout.settings.option import Option

_TOPICS: Final = {
    "Set these first": (
        "stream", "streams", "app", "zookeeper", "region", "initial_position", "ending_position", "retry_limit",
        "dead_letters", "partition_key",
    ),
    "Streams, and where a run begins and ends": (
        "stream_list_interval_seconds", "start_again", "deployment", "until", "progress_from", "fail_on_data_loss",
        "extra_columns",
    ),
    "Retries, time-outs and order": (
        "guarantee", "retry_backoff_seconds", "retry_backoff_multiplier", "retry_backoff_cap_seconds",
        "retry_jitter", "order", "message_timeout_seconds", "record_timeout_seconds",
        "maximum_record_age_seconds", "expired_records", "breaker_failure_ratio", "breaker_window",
        "deadline_seconds", "delivery_timeout_seconds",
    ),
    "How much at a time": (
        "concurrency", "max_deliveries_per_second", "max_total_deliveries_per_second", "max_pending", "max_holes",
        "max_batch_seconds", "max_records_per_slice", "max_bytes_per_slice", "max_concurrent_batches",
        "shards_per_task", "long_task_seconds", "commit_interval_seconds", "stop_timeout_seconds",
        "max_records_per_trigger", "max_bytes_per_trigger", "min_records_per_trigger",
        "max_trigger_delay_seconds", "bytes_per_task", "max_arrival_skew_seconds",
        "max_buffered_records", "max_buffered_bytes",
    ),
    "Reading": (
        "consumer_mode", "consumer_name", "deaggregate", "wire_format", "max_records_per_fetch",
        "max_fetch_bytes_per_second", "max_total_fetch_bytes_per_second", "fetch_period_seconds",
        "poll_interval_seconds", "idle_poll_interval_seconds", "idle_fetch_period_seconds",
        "shard_list_interval_seconds", "shard_list_seconds", "fetch_threads", "fetch_processes",
    ),
    "Putting": (
        "aggregation", "aggregation_max_bytes", "aggregate_bytes", "linger_seconds", "max_records_per_call",
        "max_bytes_per_call", "max_concurrent_calls", "when_full", "block_timeout_seconds",
        "close_timeout_seconds",
    ),
    "Sharing a stream": ("mode", "weight", "session_timeout_seconds", "hand_over_timeout_seconds"),
    "Accounts, endpoints and proxies": (
        "endpoint_url", "role_arn", "role_session_name", "role_external_id", "sts_endpoint", "aws_profile",
        "aws_access_key_id", "aws_secret_access_key", "aws_session_token", "ca_bundle", "proxy_url",
        "use_fips_endpoint", "use_dualstack_endpoint",
    ),
    "ZooKeeper: users, ACLs and TLS": (
        "zookeeper_root", "zookeeper_user", "zookeeper_password", "zookeeper_auth", "zookeeper_acl",
        "zookeeper_tls", "zookeeper_tls_ca", "zookeeper_tls_certificate", "zookeeper_tls_key",
        "zookeeper_tls_key_password", "zookeeper_tls_verify",
    ),
    "Monitoring and logs": (
        "http", "health_file", "stalled_after_seconds", "tracing", "log_level", "page_host",
    ),
}  # fmt: skip


def by_topic(rows: Iterable[Option]) -> Iterator[tuple[str, list[Option]]]:
    """Sort options under the headings; headings without one are left out.

    Raises:
        KeyError: an option stands under no heading.
    """
    place = {name: (topic, number) for topic, names in _TOPICS.items() for number, name in enumerate(names)}
    found: dict[str, list[Option]] = {topic: [] for topic in _TOPICS}
    for option in rows:
        found[place[option.setting][0]].append(option)
    for topic, options in found.items():
        if options:
            yield topic, sorted(options, key=lambda option: place[option.setting][1])
