"""The names of metrics are a contract: dashboards and alerts stand on them. Nothing here may be renamed."""

import re

import pytest

from kinesis_spout.monitoring.metrics import METRICS, PREFIX, Kind, Metric

NAMES = """
assignment_changes batches_timed_out buffered_bytes commit_seconds commits component_acked
component_complete_seconds component_emitted component_errors component_execute_seconds component_executed
component_failed component_timed_out damaged_aggregates dead_letters_waiting failures handler_seconds holes
info lag_avg_seconds lag_max_seconds last_commit_timestamp_seconds last_progress_timestamp_seconds leads
members oldest_unfinished_seconds paused producer_call_seconds producer_calls producer_records_dead_lettered
producer_records_dropped producer_records_failed producer_records_put producer_records_recovered
producer_records_refused producer_records_retried producer_records_sent producer_records_waiting
producer_spool_bytes producer_waiting_bytes query_active query_batch_id query_batch_timestamp_seconds
query_buffered_bytes query_bytes query_input_rows_per_second query_lag_avg_seconds query_lag_max_seconds
query_processed_rows_per_second query_records query_shards query_throttles read_bytes read_throttles
record_age_seconds record_attempts records_acked records_dead_lettered records_delivered
records_expired records_given_up records_in_flight records_outside_shard records_retried records_skipped
records_timed_out records_uncommitted retried_error retries_waiting shard_holes shard_lag_seconds
shard_oldest_unfinished_seconds shard_records_in_flight shard_retries_waiting shard_stalled shards
shards_congested shards_stalled shards_trimmed source_failures
""".split()  # noqa: SIM905 - a list of one name a line says no more
"""What was promised; new ones are added here."""


def test_the_names_are_those_that_were_promised() -> None:
    assert sorted(METRICS) == [PREFIX + name for name in NAMES]


@pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))
def test_a_name_is_one_that_prometheus_takes(metric: Metric) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]*", metric.name)
    assert not metric.name.endswith(("_total", "_bucket", "_count", "_sum"))
    assert metric.doc.endswith(".")
    assert bool(metric.bounds) == (metric.kind is Kind.HISTOGRAM)
    assert list(metric.bounds) == sorted(set(metric.bounds))
