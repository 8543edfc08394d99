"""Probes and metrics of every door on real Spark, a real ZooKeeper and a Kinesis endpoint; and their outages."""

import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import DataFrame, SparkSession

from examples.demo.processes.endpoint import LocalEndpoint, choose_engine
from kinesis_spout import KinesisSpout
from kinesis_spout.model.record import Record
from kinesis_spout.monitoring import MonitoringServer
from kinesis_spout.monitoring.doors import _servers
from kinesis_spout.plain.record_spout import RecordSpout
from kinesis_spout.spark import Collector
from kinesis_spout.storm import TopologyBuilder
from kinesis_spout.zookeeper import EmbeddedZooKeeper
from tests.fault.suite.consumers.prober import free_address
from tests.support.kinesis.endpoints import KinesisEndpoint
from tests.support.probes import get, reasons
from tests.support.spark.micro_batch_world import MakeWorld, MicroBatchWorld
from tests.support.storm.components import LogWords, Split
from tests.support.waiting import wait_until
from tests.support.zookeeper.server import java_processes

pytestmark = [
    pytest.mark.spark,
    pytest.mark.zookeeper,
    pytest.mark.endpoint,
    # PySpark asks for pandas, which nothing here uses, and warns of its newest version.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

ZOOKEEPER_SECONDS = 12.0
"""Longer than the session."""
ENDPOINT_SECONDS = 12.0
"""Longer than a shard may stand still."""
Series = dict[tuple[str, str], float]


def nothing(record: Record) -> None:
    """Handle a record."""


def count(frame: DataFrame, collector: Collector) -> None:
    """Handle a micro-batch."""
    del collector
    frame.count()


def series(address: str) -> Series:
    """Give what a scrape finds, by name and application, topology or query; the sum of a metric's series."""
    status, text = get(address, "/metrics")
    assert status == 200, text
    found: Series = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = sample.labels
            of = labels.get("app") or labels.get("topology") or labels.get("query", "")
            found[sample.name, of] = found.get((sample.name, of), 0) + sample.value
    return found


def status(address: str, app: str) -> dict[str, Any]:
    document = json.loads(get(address, f"/status?app={app}")[1])
    assert isinstance(document, dict)
    return document


def test_every_door_of_a_process_answers_at_one_address_and_the_last_one_frees_it(
    spark: SparkSession, make_world: MakeWorld
) -> None:
    world, other = make_world(), make_world()
    address = free_address()
    for each in (world, other):
        each.put([f"record {number}" for number in range(40)])
    shared = {"http": address, "stalled_after_seconds": 60.0}

    def spout(app: str, **settings: Any) -> KinesisSpout:
        return world.spout(app=app, **shared, **settings)

    builder = TopologyBuilder()
    builder.set_spout("sentences", spout("words", scheme="text"), fields=["sentence"])
    builder.set_bolt("split", Split(), 1).shuffle_grouping("sentences")
    builder.set_bolt("log", LogWords(world.log), 1).shuffle_grouping("split")
    with ExitStack() as doors:
        doors.enter_context(spout("records").foreach_record(spark, nothing))
        doors.enter_context(spout("frames").foreach_batch(spark, count))
        several = spout("several", stream=[world.stream, other.stream])
        doors.enter_context(several.foreach_record(spark, nothing))
        doors.enter_context(builder.build("words").run(spark))
        wanted = {"records": 40, "frames": 40, "several": 80, "words": 40}
        acked = "kinesis_spout_records_acked_total"
        wait_until(
            lambda: all(series(address).get((acked, app)) == each for app, each in wanted.items()),
            "all acked",
        )
        wait_until(lambda: get(address, "/readyz")[0] == 200, "all are ready")
        assert get(address, "/livez") == (200, "alive\n")

        found = series(address)
        for app, records in wanted.items():
            assert found["kinesis_spout_record_attempts_count", app] == records
        for app in ("records", "frames", "several"):
            assert found["kinesis_spout_record_age_seconds_count", app] > 0
            assert found["kinesis_spout_handler_seconds_count", app] > 0
            assert found["kinesis_spout_handler_seconds_sum", app] > 0
        assert found["kinesis_spout_component_executed_total", "words"] >= 80
        topology = status(address, "words")
        assert topology["topology"] == "words"
        assert list(topology["components"]) == ["sentences", "split", "log"]
        both = status(address, "several")
        assert both["streams"] == sorted([world.stream, other.stream])
        assert {shard["shard_id"].partition("/")[0] for shard in both["shards"]} == set(both["streams"])
        consumers = json.loads(get(address, "/readyz")[1])["consumers"]
        assert len(consumers) == 5
    assert not _servers
    with MonitoringServer(address):
        """It is free."""

    with spout("bounded", until="latest").foreach_record(spark, nothing) as bounded:
        assert bounded.awaitTermination(120)
        assert bounded.is_done
        wait_until(lambda: get(address, "/readyz")[0] == 200, "a run that came to its end is ready")
        assert get(address, "/livez")[0] == 200


def test_a_streaming_query_of_spark_is_read_from_its_last_progress(
    spark: SparkSession, world: MicroBatchWorld, tmp_path: Path
) -> None:
    world.put([f"record {number}" for number in range(30)])
    settings = world.settings
    reader = spark.readStream.format("kinesis").options(
        streamName=world.stream,
        region=settings["region"],
        endpointUrl=settings["endpoint_url"],
        awsAccessKeyId="test",
        awsSecretKey="test",
        startingPosition="trim_horizon",
    )
    fails = tmp_path / "fails"

    def handle(frame: DataFrame, number: int) -> None:
        del number
        frame.count()
        if fails.exists():
            raise ValueError("the sink is gone")

    writer = (
        reader.load().writeStream.queryName("loaded").option("checkpointLocation", str(tmp_path / "point"))
    )
    query = writer.foreachBatch(handle).start()
    try:
        with MonitoringServer("127.0.0.1:0", query) as server:
            address = str(server.address)
            read = ("kinesis_spout_query_records_total", "loaded")
            wait_until(lambda: series(address).get(read) == 30, "all are read")
            found = series(address)
            assert found["kinesis_spout_query_shards", "loaded"] == 2
            assert found["kinesis_spout_query_active", "loaded"] == 1
            assert get(address, "/livez")[0] == get(address, "/readyz")[0] == 200
            fails.touch()
            world.put(["one more"])
            wait_until(lambda: not query.isActive, "the sink ends it")
            assert get(address, "/livez")[0] == 503
            assert "ended by" in get(address, "/livez")[1]
            assert series(address)["kinesis_spout_query_active", "loaded"] == 0
    finally:
        query.stop()


@contextmanager
def stopped(pids: list[int], seconds: float) -> Iterator[None]:
    """Stop processes for so long, and until the block ends."""
    assert pids

    def signal_all(number: signal.Signals) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    signal_all(signal.SIGSTOP)
    begun = time.monotonic()
    try:
        yield
        time.sleep(max(0.0, begun + seconds - time.monotonic()))
    finally:
        signal_all(signal.SIGCONT)


class Livez(threading.Thread):
    """Asks all the time; ``said`` is what was not good."""

    def __init__(self, *addresses: str) -> None:
        super().__init__()
        self._addresses = addresses
        self._over = threading.Event()
        self.asked = 0
        self.said: list[Any] = []

    def run(self) -> None:
        while not self._over.wait(0.3):
            for address in self._addresses:
                answer = get(address, "/livez")
                self.asked += 1
                if answer[0] != 200:
                    self.said.append(answer)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


def test_an_outage_turns_no_one_dead_and_readiness_says_why(spark: SparkSession, tmp_path: Path) -> None:
    on_spark, plain = free_address(), free_address()
    with (
        EmbeddedZooKeeper(tmp_path / "zookeeper") as zookeeper,
        LocalEndpoint(choose_engine(), tmp_path / "endpoint.log") as local,
    ):
        found = local.endpoint().client_settings
        stream = KinesisEndpoint(name="own", settings=found).create_stream(shards=2)
        settings: dict[str, Any] = {
            "stream": stream,
            "region": found.region,
            "endpoint_url": found.endpoint_url,
            "aws_access_key_id": found.aws_access_key_id,
            "aws_secret_access_key": found.aws_secret_access_key,
            "zookeeper": zookeeper.connect_string,
            "session_timeout_seconds": 10.0,
            "dead_letters": str(tmp_path / "dead"),
            "commit_interval_seconds": 0.5,
        }
        query = KinesisSpout(app="records", http=on_spark, **settings).foreach_record(spark, nothing)
        with query, RecordSpout(app="plain", http=plain, **settings).open(), Livez(on_spark, plain) as livez:
            both = (on_spark, plain)

            def all_ready() -> bool:
                return all(get(address, "/readyz")[0] == 200 for address in both)

            wait_until(all_ready, "both are ready")
            with stopped(java_processes(zookeeper.data_dir), ZOOKEEPER_SECONDS):
                for address in both:
                    wait_until(lambda: "ZooKeeper does not answer" in str(reasons(address)), "it is said")  # noqa: B023
            wait_until(all_ready, "both are ready again")

            with stopped([local._process.pid], ENDPOINT_SECONDS):
                for address in both:
                    wait_until(lambda: get(address, "/readyz")[0] == 503, "it is said")  # noqa: B023
                    for reason in reasons(address):
                        # The driver reads, or an executor; or the list of shards, after a lost session.
                        if reason["shard_id"] is None:
                            assert "a call has lasted" in reason["reason"]
                        else:
                            assert reason["shard_id"] in {"shardId-000000000000", "shardId-000000000001"}
                            assert re.search("a read has lasted|a slice of it is under way", reason["reason"])
            wait_until(all_ready, "both are ready again")
        assert not livez.said
        assert livez.asked > 50
