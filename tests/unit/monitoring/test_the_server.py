"""What a door answers over HTTP while it works, and while it does not."""

import json
import re
import sys
import threading
import urllib.error
from collections.abc import Iterator
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kinesis_spout.cli.runs.snapshot import QuerySnapshots
from kinesis_spout.model.errors import InvalidConfig, StoreUnavailable
from kinesis_spout.model.handler import RetryLater
from kinesis_spout.monitoring import METRICS, MonitoringServer
from kinesis_spout.monitoring.consumer_watch import _has_work
from kinesis_spout.monitoring.doors import _servers
from kinesis_spout.testing import SteppedProducer
from shard_state import ShardPhase, ShardStatus
from tests.fault.suite.consumers.prober import free_address
from tests.support.consumer.world import FIRST, World
from tests.support.kinesis.writable import WritableKinesis
from tests.support.probes import get, reasons

QUICK = {"stalled_after_seconds": 0.5, "commit_interval_seconds": 0.05}


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def test_a_spout_that_delivers_is_alive_and_ready_and_shows_its_figures(world: World) -> None:
    spout = world.spout(**QUICK)
    world.put_in(FIRST, "a", "b", "c")
    with MonitoringServer("127.0.0.1:0", spout) as server:
        for emitted in world.take(spout, 3):
            spout.ack(emitted.message_id)
        world.until(lambda: not spout.uncommitted, "the progress is stored")

        assert get(server.address, "/livez") == (200, "alive\n")
        world.until(lambda: get(server.address, "/readyz")[0] == 200, "it is ready")
        status, text = get(server.address, "/metrics")
        assert status == 200
        series = {
            (sample.name, sample.labels.get("stream")): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        assert series["kinesis_spout_records_delivered_total", "orders"] == 3
        assert series["kinesis_spout_records_acked_total", "orders"] == 3
        assert series["kinesis_spout_record_attempts_count", "orders"] == 3
        document = json.loads(get(server.address, "/status")[1])
        assert (document["state"], document["delivered"], document["acked"]) == ("running", 3, 3)
        assert [shard["shard_id"] for shard in document["shards"]] == [FIRST]


def test_a_shard_that_stands_still_turns_it_unready_and_is_named(world: World) -> None:
    spout = world.spout(**QUICK)
    world.put_in(FIRST, "a", "b")
    with MonitoringServer("127.0.0.1:0", spout) as server:
        first, second = world.take(spout, 2)
        world.until(lambda: get(server.address, "/readyz")[0] == 503, "it is not ready")
        (reason,) = reasons(server.address)
        assert reason["shard_id"] == FIRST
        assert reason["reason"].startswith("has not moved for ")
        assert "2 in flight" in reason["reason"]
        assert get(server.address, "/livez")[0] == 200
        (shard,) = json.loads(get(server.address, "/readyz")[1])["consumers"][0]["shards"]
        assert not shard["ready"]
        (shard,) = json.loads(get(server.address, "/status")[1])["shards"]
        assert shard["stalled"]
        assert "2 in flight" in shard["reason"]

        spout.ack(first.message_id)
        spout.ack(second.message_id)
        world.until(lambda: get(server.address, "/readyz")[0] == 200, "it is ready again")


def test_an_idle_shard_is_ready(world: World) -> None:
    spout = world.spout(stalled_after_seconds=0.5, commit_interval_seconds=0.05)
    with MonitoringServer("127.0.0.1:0", spout) as server:
        for _ in range(3):
            # A call that is under way while the clock jumps seems to hang for that moment.
            world.until(lambda: get(server.address, "/readyz")[0] == 200, "it is ready")
            world.clock.sleep(1.0)
        world.until(lambda: get(server.address, "/readyz")[0] == 200, "it is still ready")


def test_a_pause_by_an_operator_is_a_reason_and_no_stall(world: World) -> None:
    spout = world.spout(**QUICK)
    world.put_in(FIRST, "a")
    with MonitoringServer("127.0.0.1:0", spout) as server:
        spout.pause_shards()
        world.until(
            lambda: [each["shard_id"] for each in reasons(server.address)] == [None], "the pause is told"
        )
        assert "paused by an operator" in reasons(server.address)[0]["reason"]


def test_an_outage_of_zookeeper_never_turns_it_dead(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    spout = world.spout(**QUICK)
    with MonitoringServer("127.0.0.1:0", spout) as server:
        (consumer,) = spout._consumers().values()
        monkeypatch.setattr(consumer.ports.coordinator, "is_certain", lambda: False)
        world.until(lambda: bool(reasons(server.address)), "it is not ready")
        assert "ZooKeeper does not answer" in reasons(server.address)[0]["reason"]
        assert get(server.address, "/livez")[0] == 200


def test_a_scrape_does_not_wait_for_zookeeper(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    spout = world.spout(**QUICK)
    with MonitoringServer("127.0.0.1:0", spout) as server:
        leads = 'kinesis_spout_leads{app="billing",stream="orders"} 1.0'
        world.until(lambda: leads in get(server.address, "/metrics")[1], "it leads")
        (consumer,) = spout._consumers().values()
        answered = threading.Event()
        monkeypatch.setattr(consumer.ports.group, "leads", lambda: answered.wait(60))
        try:
            for _ in range(3):
                world.clock.advance(1.0)
                assert leads in get(server.address, "/metrics")[1]
        finally:
            answered.set()


def test_a_consumer_that_ended_is_dead_and_says_why(world: World) -> None:
    spout = world.spout(**QUICK)
    with MonitoringServer("127.0.0.1:0", spout) as server:
        (consumer,) = spout._consumers().values()
        consumer.end_with(StoreUnavailable("gone for good"))
        world.until(lambda: get(server.address, "/livez")[0] == 503, "it is dead")
        assert "gone for good" in get(server.address, "/livez")[1]


def test_series_of_shards_are_there_when_they_are_asked_for(world: World) -> None:
    spout = world.spout(**QUICK)
    with MonitoringServer("127.0.0.1:0", spout) as server:
        assert "kinesis_spout_shard_" not in get(server.address, "/metrics")[1]
        text = get(server.address, "/metrics?per_shard=1")[1]
        assert f'kinesis_spout_shard_stalled{{app="billing",shard="{FIRST}",stream="orders"}}' in text


def test_doors_of_one_process_share_an_address_and_the_last_one_frees_it(world: World) -> None:
    address = free_address()
    settings = {**QUICK, "http": address}
    one, two = world.spout(**settings), world.spout(**settings)
    document = json.loads(get(address, "/status")[1])
    assert len(document["several"]) == 2
    one.close()
    assert json.loads(get(address, "/status")[1])["member"] == document["several"][1]["member"]
    two.close()
    assert not _servers
    with pytest.raises(urllib.error.URLError):
        get(address, "/livez")


def test_an_address_that_is_taken_is_an_error_of_the_start(world: World) -> None:
    expected = pytest.raises(InvalidConfig, match=r"http: expected an address that is free")
    with MonitoringServer("127.0.0.1:0") as other, expected:
        world.spout(http=other.address)


class Query:
    """A query of Spark, whose JVM may be gone."""

    name, id, isActive, lastProgress = "sums", "1", True, None  # noqa: N815, A003, RUF100
    is_gone = False

    def __getattribute__(self, name: str) -> Any:
        if name in {"name", "id", "isActive", "lastProgress"} and type(self).is_gone:
            raise ConnectionRefusedError(111, "Connection refused")
        return super().__getattribute__(name)

    def exception(self) -> None:
        return None


def test_one_source_that_raises_takes_no_other_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    producer, query = SteppedProducer("s", client=WritableKinesis(s=1).client), Query()
    with MonitoringServer("127.0.0.1:0", producer, query) as server:
        world.until(lambda: get(server.address, "/readyz")[0] == 200, "both are well")
        monkeypatch.setattr(Query, "is_gone", True)
        status, text = get(server.address, "/livez")
        assert (status, "a query of Spark" in text) == (503, True)
        status, text = get(server.address, "/readyz")
        assert (status, "Query cannot be read: ConnectionRefusedError" in text) == (503, True)
        status, text = get(server.address, "/metrics")
        assert status == 200
        assert "kinesis_spout_producer_records_put_total" in text
        assert 'kinesis_spout_source_failures_total{source="Query"}' in text

        monkeypatch.setattr(Query, "is_gone", False)
        world.until(lambda: get(server.address, "/metrics")[0] == 200, "it can be read again")
        assert get(server.address, "/readyz")[0] == 200
    producer.close()


@pytest.mark.parametrize("path", ["/", "//["])
def test_an_unknown_path_says_which_there_are(path: str) -> None:
    with MonitoringServer("127.0.0.1:0") as server:
        status, text = get(server.address, path)
        assert (status, text) == (404, "expected one of /livez, /readyz, /metrics, /status\n")


def test_every_metric_of_a_consumer_is_read(world: World) -> None:
    spout = world.spout(**QUICK)
    ours = {name for name, metric in METRICS.items() if metric.labels[:2] == ("app", "stream")}
    needs_failures = {"kinesis_spout_records_given_up", "kinesis_spout_failures"}
    with MonitoringServer("127.0.0.1:0", spout) as server:

        def missing() -> set[str]:
            text = get(server.address, "/metrics?per_shard=1")[1]
            return {name for name in ours - needs_failures if f"# TYPE {name}" not in text}

        # A shard's lag is known from its first answer on.
        world.until(lambda: not missing(), lambda: f"these too: {missing()}")


@pytest.mark.skipif(sys.platform != "linux", reason="prometheus_client reads /proc")
def test_the_process_is_measured_under_the_names_of_the_client_library() -> None:
    with MonitoringServer("127.0.0.1:0") as server:
        text = get(server.address, "/metrics")[1]
    for name in ("cpu_seconds_total", "resident_memory_bytes", "open_fds", "max_fds", "start_time_seconds"):
        assert re.search(rf"^process_{name} [0-9.e+]+$", text, re.MULTILINE), name


def test_the_status_names_the_records_that_come_again_first(world: World) -> None:
    spout = world.spout(**QUICK, retry_backoff_seconds=30.0)
    world.put_in(FIRST, "a", "b")
    with MonitoringServer("127.0.0.1:0", spout) as server:
        for emitted, delay in zip(world.take(spout, 2), (20.0, 5.0), strict=True):
            spout.fail(emitted.message_id, RetryLater(delay))
        first, second = json.loads(get(server.address, "/status")[1])["retrying"]
    assert (first["shard_id"], first["attempts"], second["attempts"]) == (FIRST, 1, 1)
    assert 0 < first["due_in_seconds"] <= 5 < second["due_in_seconds"] <= 20
    assert int(first["sequence_number"]) > int(second["sequence_number"])


def test_the_status_is_what_run_prints_as_json_and_more(world: World) -> None:
    spout = world.spout(**QUICK)
    world.put_in(FIRST, "a", "b")
    world.take(spout, 2)
    printed = QuerySnapshots(cast("Any", WithoutProgress(spout))).take("running").document()
    with MonitoringServer("127.0.0.1:0", spout) as server:
        status = json.loads(get(server.address, "/status")[1])
    missing = printed.keys() - status.keys()
    assert not missing
    elsewhere = {"timestamp", "records_per_second", "lag_millis"}
    assert {name: status[name] for name in printed.keys() - elsewhere} == {
        name: value for name, value in printed.items() if name not in elsewhere
    }


class WithoutProgress:
    """A spout where a query is expected, which has micro-batches besides."""

    lastProgress = None  # noqa: N815 - Spark's name
    is_done = False

    def __init__(self, spout: Any) -> None:
        self._spout = spout

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spout, name)


def test_records_that_wait_for_the_rate_of_deliveries_do_not_stand_still(world: World) -> None:
    spout = world.spout(**QUICK, max_deliveries_per_second=0.2)
    world.put_in(FIRST, "a", "b", "c")
    with MonitoringServer("127.0.0.1:0", spout) as server:
        for emitted in world.take(spout, 1):
            spout.ack(emitted.message_id)
        world.until(lambda: not spout.uncommitted, "the progress is stored")
        for _ in range(8):
            world.clock.sleep(0.5)
            assert spout.next_tuple() is None
            assert get(server.address, "/readyz")[0] == 200


def test_records_that_nobody_takes_stand_still(world: World) -> None:
    spout = world.spout(**QUICK)
    with MonitoringServer("127.0.0.1:0", spout) as server:
        world.put_in(FIRST, "a")
        world.until(lambda: bool(reasons(server.address)), "it is not ready")
        assert "records read and not handed out" in reasons(server.address)[0]["reason"]


@pytest.mark.parametrize("phase", [ShardPhase.AT_BOUND, ShardPhase.AT_END])
def test_a_shard_of_which_nothing_is_to_be_read_has_no_backlog(phase: ShardPhase) -> None:
    status = ShardStatus(shard_id=FIRST, phase=phase)
    assert not _has_work(status, is_unread=False, is_behind=True)
    assert _has_work(status._replace(phase=ShardPhase.READING), is_unread=False, is_behind=True)
    assert _has_work(status._replace(in_flight=1), is_unread=False, is_behind=False)
