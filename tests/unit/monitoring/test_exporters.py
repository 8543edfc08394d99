"""The table's metrics in Prometheus and in OpenTelemetry, of every kind of thing that can be watched."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.model.handler import Reject
from kinesis_spout.monitoring import PrometheusCollector, export_to_opentelemetry, otel
from kinesis_spout.monitoring.readings import Sources
from kinesis_spout.testing import SteppedProducer
from tests.support.consumer.world import FIRST, World
from tests.support.kinesis.writable import WritableKinesis

Points = dict[str, list[Any]]


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def points(reader: InMemoryMetricReader) -> Points:
    data = reader.get_metrics_data()
    assert data is not None
    return {
        metric.name: list(metric.data.data_points)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def raised(error: Exception) -> Exception:
    with contextlib.suppress(type(error)):
        raise error
    return error


def values(*watched: Any) -> dict[str, float]:
    """Counters and gauges of Prometheus, by name; the sum of a metric's series."""
    registry = CollectorRegistry()
    registry.register(PrometheusCollector(*watched))
    found: dict[str, float] = {}
    for family in registry.collect():
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0) + sample.value
    return found


def test_what_is_given_up_is_counted_by_reason_and_exception(world: World) -> None:
    spout = world.spout(retry_limit=0)
    world.put_in(FIRST, "a", "b", "c")
    one, two, three = world.take(spout, 3)
    spout.fail(one.message_id, raised(KeyError("secret of a record")))
    spout.fail(two.message_id, Reject("no"))
    spout.fail(three.message_id, "a text")
    registry = CollectorRegistry()
    registry.register(PrometheusCollector(spout))
    text = generate_latest(registry).decode()
    labels = 'app="billing",error="{}",reason="{}",stream="orders"'
    for error, reason in (("KeyError", "exhausted"), ("Reject", "rejected"), ("no exception", "exhausted")):
        assert f"records_given_up_total{{{labels.format(error, reason)}}} 1.0" in text
    assert "secret" not in text


def test_plain_python_measures_from_the_hand_out_to_the_ack_or_the_fail(world: World) -> None:
    spout = world.spout(retry_limit=0, message_timeout_seconds=30.0)
    world.put_in(FIRST, "a", "b", "c")
    one, two, late = world.take(spout, 3)
    world.clock.advance(2.0)
    spout.ack(one.message_id)
    spout.fail(two.message_id, "a text")
    world.clock.advance(60.0)
    world.until(
        lambda: spout.next_tuple() is None and spout.counters.timed_out == 1, "the third is timed out"
    )
    spout.ack(late.message_id)
    registry = CollectorRegistry()
    registry.register(PrometheusCollector(spout))
    labels = {"app": "billing", "stream": "orders"}
    assert registry.get_sample_value("kinesis_spout_handler_seconds_count", labels) == 2
    seconds = registry.get_sample_value("kinesis_spout_handler_seconds_sum", labels)
    assert seconds == pytest.approx(4.0, abs=1.0)
    failed = registry.get_sample_value("kinesis_spout_failures_total", {**labels, "error": "no exception"})
    assert failed == 2, "the text, and the time-out"


def test_attempts_and_ages_of_acked_records_are_histograms(world: World) -> None:
    spout = world.spout()
    world.put_in(FIRST, "a")
    (emitted,) = world.take(spout, 1)
    spout.fail(emitted.message_id, "again")
    (again,) = world.take(spout, 1)
    spout.ack(again.message_id)
    found = values(spout)
    assert (found["kinesis_spout_record_attempts_count"], found["kinesis_spout_record_attempts_sum"]) == (
        1,
        2,
    )
    assert found["kinesis_spout_record_age_seconds_count"] == 8, "it stands for eight"
    assert found["kinesis_spout_records_retried_total"] == 1


def test_opentelemetry_has_the_table_the_conventions_and_the_names_of_kcl(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otel, "_KEPT_SECONDS", 0.0)
    spout = world.spout(commit_interval_seconds=0.05)
    world.put_in(FIRST, *"abc")
    reader = InMemoryMetricReader()
    export_to_opentelemetry(spout, meter_provider=MeterProvider([reader]), kcl_names=True)
    points(reader)
    for emitted in world.take(spout, 3):
        spout.ack(emitted.message_id)
    world.until(lambda: not spout.uncommitted, "the progress is stored")
    world.clock.advance(2)
    points(reader)  # which feeds the histograms
    found = points(reader)
    (delivered,) = found["kinesis_spout_records_delivered"]
    assert (delivered.value, delivered.attributes) == (3, {"app": "billing", "stream": "orders"})
    (consumed,) = found["messaging.client.consumed.messages"]
    assert consumed.value == 3
    assert consumed.attributes["messaging.system"] == "aws.kinesis"
    assert consumed.attributes["messaging.destination.name"] == "orders"
    assert consumed.attributes["messaging.consumer.group.name"] == "billing"
    (processed,) = found["aws.kinesis.client.records_processed"]
    assert (processed.value, processed.attributes["aws.kinesis.stream_name"]) == (3, "orders")
    (attempts,) = found["kinesis_spout_record_attempts"]
    assert attempts.count == 3
    operations = found["messaging.client.operation.duration"]
    assert [each.attributes["messaging.operation.type"] for each in operations] == ["settle"]


def test_without_being_asked_there_are_no_names_of_kcl(world: World) -> None:
    reader = InMemoryMetricReader()
    export_to_opentelemetry(world.spout(), meter_provider=MeterProvider([reader]))
    assert not [name for name in points(reader) if name.startswith("aws.")]


def test_a_query_of_structured_streaming_is_read_from_its_last_progress() -> None:
    told = {
        "streams": ["orders"], "mode": "polling", "minMsBehindLatest": 0, "avgMsBehindLatest": 500,
        "maxMsBehindLatest": 2000, "numTotalShards": 4, "numClosedShards": 0, "numProcessedRecords": 70,
        "numProcessedBytes": 700, "numAwsRateLimitErrors": 1, "bufferedBytes": 10, "numAggregates": 0,
        "numDamagedAggregates": 0, "numRecordsOutsideShard": 0,
    }  # fmt: skip
    source = {
        "latestOffset": json.dumps({"kinesis": told}),
        "inputRowsPerSecond": float("nan"),
        "processedRowsPerSecond": 35.0,
    }

    class Query:
        name, id, isActive = None, "the-id", True  # noqa: N815 - Spark's names
        lastProgress: Any = None  # noqa: N815

        def exception(self) -> None: ...

    query = Query()
    samples = {sample.metric.name: sample for sample in Sources([query]).read()}
    assert set(samples) == {"kinesis_spout_query_active"}
    other = {**source, "latestOffset": '{"their": 1}'}
    query.lastProgress = {
        "batchId": 7, "timestamp": "2026-11-24T08:00:00.000Z", "sources": [source, other],
    }  # fmt: skip
    samples = {sample.metric.name: sample for sample in Sources([query]).read()}
    assert samples["kinesis_spout_query_lag_max_seconds"].value == 2.0
    assert samples["kinesis_spout_query_records"].value == 70
    assert samples["kinesis_spout_query_input_rows_per_second"].value == 0.0
    assert samples["kinesis_spout_query_batch_id"].labels == {"query": "the-id", "stream": "orders"}


def test_a_producer_counts_its_records_and_times_its_calls() -> None:
    producer = SteppedProducer("s", client=WritableKinesis(s=1).client)
    producer.put(b"a", "key")
    producer.put(b"b", "key")
    producer.flush()
    found = values(producer)
    assert (
        found["kinesis_spout_producer_records_put_total"],
        found["kinesis_spout_producer_records_sent_total"],
    ) == (2, 2)
    assert (
        found["kinesis_spout_producer_call_seconds_count"] == found["kinesis_spout_producer_calls_total"] == 1
    )
    assert found["kinesis_spout_producer_spool_bytes"] == 0
    producer.close()


def test_something_else_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="expected a spout, a query"):
        PrometheusCollector(object())  # type: ignore[arg-type]


def test_the_consumers_of_a_closed_spout_are_gone_from_the_metrics(world: World) -> None:
    spout = world.spout()
    assert values(spout)["kinesis_spout_members"] == 1
    spout.close()
    assert not values(spout)
