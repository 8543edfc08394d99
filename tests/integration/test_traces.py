"""A trace from a producer over a Kinesis endpoint to handlers in Spark's workers, where the SDK is set up."""

from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pyspark.sql import SparkSession

from kinesis_spout import KinesisProducer
from tests.support.spark.micro_batch_world import MicroBatchWorld
from tests.support.spark.worker_traces import Charging, spans_in
from tests.support.traces import spans

__all__ = ["spans"]  # a fixture

pytestmark = [
    pytest.mark.spark,
    pytest.mark.zookeeper,
    pytest.mark.endpoint,
    # PySpark asks for pandas, which nothing here uses, and warns of its newest version.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


def test_the_spans_of_handlers_are_linked_to_those_that_put_their_records(
    spark: SparkSession, world: MicroBatchWorld, tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    tracer = trace.get_tracer("test")
    orders: dict[str, str] = {}
    client = world.endpoint.client()
    with KinesisProducer(world.stream, client=client, aggregation=True, tracing=True) as producer:
        producer.put(b"outside", "key")
        for payload in ("one", "bad", "three"):
            with tracer.start_as_current_span("order") as order:
                ticket = producer.put(payload.encode(), "key")
            orders[payload] = f"0x{order.get_span_context().span_id:016x}"
            if payload == "one":
                producer.flush()  # so that "bad" and "three" are in another aggregated record
    assert ticket.result(0).sub_sequence_number is not None
    sent = [span for span in spans.get_finished_spans() if span.name == f"send {world.stream}"]
    assert {f"0x{link.context.span_id:016x}" for span in sent for link in span.links} == {*orders.values()}

    made = tmp_path / "spans"
    with world.spout(tracing=True).foreach_record(spark, Charging(str(made))) as query:
        query.processAllAvailable()
        assert (query.counters.acked, query.counters.retried) == (4, 1)

    found = spans_in(made)
    processed = [span for span in found if span["name"] == f"process {world.stream}"]
    assert sorted(
        (span["links"][0]["context"]["span_id"], span["attributes"]["kinesis_spout.attempt"])
        for span in processed
    ) == sorted([(orders["one"], 1), (orders["bad"], 1), (orders["bad"], 2), (orders["three"], 1)])
    assert [span["attributes"].get("error.type") for span in processed].count("ValueError") == 1
    assert {span["kind"] for span in processed} == {"SpanKind.CONSUMER"}
    charged = [span for span in found if span["name"] == "charge"]
    assert len(charged) == 5
    own = {span["context"]["span_id"] for span in processed}
    assert len(own & {span["parent_id"] for span in charged}) == 4, "a handler's own spans are inside"
