# Written from the table by tests/unit/settings/test_typed.py.
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeAlias, TypedDict

import msgspec

Positions: TypeAlias = str | float | datetime | Mapping[str, Any]

class SpoutFields(msgspec.Struct, frozen=True, kw_only=True):
    stream: str
    stream_list_interval_seconds: float
    app: str
    zookeeper: str
    zookeeper_root: str
    zookeeper_user: str | None
    zookeeper_password: str | None
    zookeeper_auth: Literal["digest", "sasl-digest"]
    zookeeper_acl: str | None
    zookeeper_tls: bool
    zookeeper_tls_ca: str | None
    zookeeper_tls_certificate: str | None
    zookeeper_tls_key: str | None
    zookeeper_tls_key_password: str | None
    zookeeper_tls_verify: Literal["full", "ca", "none"]
    session_timeout_seconds: float
    mode: Literal["sharing", "standby"]
    weight: float
    hand_over_timeout_seconds: float
    region: str | None
    endpoint_url: str | None
    role_arn: str | None
    role_session_name: str | None
    role_external_id: str | None
    sts_endpoint: str | None
    aws_access_key_id: str | None
    aws_secret_access_key: str | None
    aws_session_token: str | None
    aws_profile: str | None
    ca_bundle: str | None
    proxy_url: str | None
    use_fips_endpoint: bool | None
    use_dualstack_endpoint: bool | None
    initial_position: str
    start_again: str | None
    deployment: str | None
    until: str | None
    fail_on_data_loss: bool
    guarantee: Literal["at_least_once", "at_most_once", "none"]
    retry_limit: int | None
    retry_backoff_seconds: float
    retry_backoff_multiplier: float
    retry_backoff_cap_seconds: float
    retry_jitter: float
    order: Literal["unordered", "key", "shard"]
    maximum_record_age_seconds: float | None
    expired_records: Literal["dead_letter", "skip"]
    concurrency: int
    record_timeout_seconds: float | None
    message_timeout_seconds: float | None
    max_spared_seconds: float | None
    max_records_per_fetch: int
    max_fetch_bytes_per_second: int
    max_total_fetch_bytes_per_second: int | None
    fetch_period_seconds: float
    deaggregate: bool
    poll_interval_seconds: float
    idle_poll_interval_seconds: float
    shard_list_interval_seconds: float
    max_buffered_bytes: int
    consumer_mode: Literal["polling", "efo"]
    consumer_name: str | None
    max_deliveries_per_second: float | None
    max_total_deliveries_per_second: float | None
    max_pending: int
    max_holes: int
    max_records_per_slice: int
    max_bytes_per_slice: int
    shards_per_task: int
    max_concurrent_batches: int
    max_batch_seconds: float
    long_task_seconds: float
    commit_interval_seconds: float
    stop_timeout_seconds: float
    dead_letters: str | None
    http: str | None
    stalled_after_seconds: float
    tracing: bool

class ProducerFields(msgspec.Struct, frozen=True, kw_only=True):
    stream: str
    region: str | None
    endpoint_url: str | None
    role_arn: str | None
    role_session_name: str | None
    role_external_id: str | None
    sts_endpoint: str | None
    aws_access_key_id: str | None
    aws_secret_access_key: str | None
    aws_session_token: str | None
    aws_profile: str | None
    ca_bundle: str | None
    proxy_url: str | None
    use_fips_endpoint: bool | None
    use_dualstack_endpoint: bool | None
    order: Literal["unordered", "key"]
    aggregation: bool
    aggregation_max_bytes: int
    linger_seconds: float
    max_records_per_call: int
    max_bytes_per_call: int
    max_concurrent_calls: int
    max_buffered_records: int
    max_buffered_bytes: int
    when_full: Literal["block", "refuse", "drop_oldest"]
    block_timeout_seconds: float
    delivery_timeout_seconds: float
    dead_letters: str | None
    close_timeout_seconds: float
    tracing: bool

class ZooKeeperKeywords(TypedDict, total=False):
    zookeeper: str
    zookeeper_root: str
    zookeeper_user: str | None
    zookeeper_password: str | None
    zookeeper_auth: Literal["digest", "sasl-digest"]
    zookeeper_acl: str | None
    zookeeper_tls: bool
    zookeeper_tls_ca: str | None
    zookeeper_tls_certificate: str | None
    zookeeper_tls_key: str | None
    zookeeper_tls_key_password: str | None
    zookeeper_tls_verify: Literal["full", "ca", "none"]
    session_timeout_seconds: float

class KinesisKeywords(TypedDict, total=False):
    region: str | None
    endpoint_url: str | None
    role_arn: str | None
    role_session_name: str | None
    role_external_id: str | None
    sts_endpoint: str | None
    aws_access_key_id: str | None
    aws_secret_access_key: str | None
    aws_session_token: str | None
    aws_profile: str | None
    ca_bundle: str | None
    proxy_url: str | None
    use_fips_endpoint: bool | None
    use_dualstack_endpoint: bool | None

class SpoutSettings(ZooKeeperKeywords, KinesisKeywords, total=False):
    stream: str | Sequence[str]
    stream_list_interval_seconds: float
    app: str
    mode: Literal["sharing", "standby"]
    weight: float
    hand_over_timeout_seconds: float
    initial_position: Positions
    start_again: Positions | None
    deployment: str | None
    until: Positions | None
    fail_on_data_loss: bool
    guarantee: Literal["at_least_once", "at_most_once", "none"]
    retry_limit: int | None
    retry_backoff_seconds: float
    retry_backoff_multiplier: float
    retry_backoff_cap_seconds: float
    retry_jitter: float
    order: Literal["unordered", "key", "shard"]
    maximum_record_age_seconds: float | None
    expired_records: Literal["dead_letter", "skip"]
    concurrency: int
    record_timeout_seconds: float | None
    message_timeout_seconds: float | None
    max_spared_seconds: float | None
    max_records_per_fetch: int
    max_fetch_bytes_per_second: int
    max_total_fetch_bytes_per_second: int | None
    fetch_period_seconds: float
    deaggregate: bool
    poll_interval_seconds: float
    idle_poll_interval_seconds: float
    shard_list_interval_seconds: float
    max_buffered_bytes: int
    consumer_mode: Literal["polling", "efo"]
    consumer_name: str | None
    max_deliveries_per_second: float | None
    max_total_deliveries_per_second: float | None
    max_pending: int
    max_holes: int
    max_records_per_slice: int
    max_bytes_per_slice: int
    shards_per_task: int
    max_concurrent_batches: int
    max_batch_seconds: float
    long_task_seconds: float
    commit_interval_seconds: float
    stop_timeout_seconds: float
    dead_letters: str | None
    http: str | None
    stalled_after_seconds: float
    tracing: bool

class ProducerSettings(KinesisKeywords, total=False):
    order: Literal["unordered", "key"]
    aggregation: bool
    aggregation_max_bytes: int
    linger_seconds: float
    max_records_per_call: int
    max_bytes_per_call: int
    max_concurrent_calls: int
    max_buffered_records: int
    max_buffered_bytes: int
    when_full: Literal["block", "refuse", "drop_oldest"]
    block_timeout_seconds: float
    delivery_timeout_seconds: float
    close_timeout_seconds: float
    tracing: bool
