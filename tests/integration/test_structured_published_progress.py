"""A streaming query's progress in a real ZooKeeper, seen by the command line and taken up by other queries."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from kinesis_spout.cli.app import app
from kinesis_spout.zookeeper import EmbeddedZooKeeper, Paths, ZooKeeperBackend, ZooKeeperSession
from shard_state import Checkpoint, Position
from tests.support.kinesis.endpoints import KinesisEndpoint
from tests.support.spark.structured_queries import (
    CollectedBatches,
    QueriedStream,
    failure_of,
    run_available,
    running,
    source_options,
    start,
    wait_for_rows,
    wait_while_running,
)
from tests.support.spark.versions import since_4_2
from tests.support.waiting import wait_until
from tests.support.zookeeper.server import SESSION_TIMEOUT_SECONDS

pytestmark = [
    pytest.mark.spark,
    pytest.mark.zookeeper,
    pytest.mark.endpoint,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

T = TypeVar("T")


@dataclass
class Application:
    """An application in ZooKeeper on a stream of an endpoint."""

    spark: SparkSession
    stream: QueriedStream
    zookeeper: str
    root: str
    directory: Path
    sinks: list[CollectedBatches] = field(default_factory=list)

    def options(self, **more: str) -> dict[str, str]:
        return source_options(
            self.stream.endpoint,
            streamName=self.stream.name,
            checkpointApp="billing",
            zookeeper=self.zookeeper,
            zookeeperRoot=self.root,
            **more,
        )

    def run(self, checkpoint: str, **more: str) -> list[str]:
        """Run a query for what is available; give what it read."""
        sink = CollectedBatches()
        run_available(self.spark, self.options(**more), self.directory / checkpoint, sink)
        return sorted(sink.payloads)

    def command(self, *arguments: str) -> Any:
        settings = self.stream.endpoint.settings
        given = {
            "STREAM": self.stream.name,
            "APP": "billing",
            "ZOOKEEPER": self.zookeeper,
            "ZOOKEEPER_ROOT": self.root,
            "REGION": settings.region,
            "ENDPOINT_URL": settings.endpoint_url,
            "AWS_ACCESS_KEY_ID": settings.aws_access_key_id,
            "AWS_SECRET_ACCESS_KEY": settings.aws_secret_access_key,
        }
        environment = {f"KINESIS_SPOUT_{name}": value for name, value in given.items()}
        result = CliRunner().invoke(app, [*arguments, "--json"], env=environment)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def stored(self) -> dict[str, Checkpoint]:
        return self._with_backend(lambda backend: dict(backend.store.load()))

    def reset(self, position: Position) -> None:
        checkpoints = {shard_id: Checkpoint(start=position) for shard_id in self.stored()}
        self._with_backend(lambda backend: backend.store.reset(checkpoints))

    def _with_backend(self, work: Callable[[ZooKeeperBackend], T]) -> T:
        session = ZooKeeperSession(self.zookeeper, session_timeout_seconds=SESSION_TIMEOUT_SECONDS)
        paths = Paths(root=self.root, app="billing", stream=self.stream.name)
        with ZooKeeperBackend(session, paths) as backend:
            return work(backend)


@pytest.fixture
def application(
    spark: SparkSession,
    moto_server: KinesisEndpoint,
    zookeeper_server: EmbeddedZooKeeper,
    fresh_root: str,
    tmp_path: Path,
) -> Application:
    stream = QueriedStream(moto_server, 2)
    return Application(spark, stream, zookeeper_server.connect_string, fresh_root, tmp_path)


def test_the_command_line_shows_a_running_query(application: Application) -> None:
    application.stream.put_all(str(number) for number in range(50))
    sink = CollectedBatches()
    with running(application.spark, application.options(), application.directory / "one", sink) as query:
        wait_for_rows(query, sink, 50)
        last = {shard_id: str(last) for shard_id, last in _last_of(sink).items()}

        def shown() -> list[dict[str, Any]]:
            shards: list[dict[str, Any]] = application.command("shards", "--no-lag")["shards"]
            return shards

        wait_while_running(
            query,
            lambda: {shard["shard_id"]: shard["checkpoint"] for shard in shown()} == last,
            "everything to be published",
        )
        shards = shown()
        assert {shard["state"] for shard in shards} == {"reading"}
        assert len({shard["owner"] for shard in shards}) == 1
    assert {shard_id: str(checkpoint.base) for shard_id, checkpoint in application.stored().items()} == last


@since_4_2
def test_a_query_without_a_checkpoint_begins_where_the_last_one_ended(application: Application) -> None:
    first = application.stream.put_all(f"first {number}" for number in range(30))
    assert application.run("one") == sorted(first)
    second = application.stream.put_all(f"second {number}" for number in range(30))
    assert application.run("two", initialPosition="latest") == sorted(second)
    assert application.run("three") == []


@since_4_2
@pytest.mark.parametrize("wins", ["spark", "zookeeper"])
def test_which_progress_wins_is_an_option(application: Application, wins: str) -> None:
    payloads = sorted(application.stream.put_all(str(number) for number in range(20)))
    assert application.run("one") == payloads
    application.reset(Position.trim_horizon())
    again = application.run("one", progressFrom=wins)
    assert again == ([] if wins == "spark" else payloads)
    assert application.run("one", progressFrom=wins) == []


def test_a_stopped_query_is_waited_for_and_nothing_is_lost(application: Application) -> None:
    first = application.stream.put_all(f"first {number}" for number in range(20))
    sink = CollectedBatches()
    with running(application.spark, application.options(), application.directory / "one", sink) as query:
        wait_for_rows(query, sink, 20)
    second = application.stream.put_all(f"second {number}" for number in range(20))
    # The process of the first was ended without a word: its last publication may be missing.
    assert set(second) <= set(application.run("two")) <= {*first, *second}


def test_a_second_living_query_of_the_application_ends_with_an_error(application: Application) -> None:
    application.stream.put_all(["a"])
    sink = CollectedBatches()
    with running(application.spark, application.options(), application.directory / "one", sink) as query:
        wait_for_rows(query, sink, 1)
        wait_until(lambda: bool(application.stored()), "the application to begin")
        second = start(
            application.spark, application.options(), application.directory / "two", CollectedBatches()
        )
        message = failure_of(second)
        assert "expected nobody else at work" in message
        assert "another checkpointApp" in message
        assert query.isActive


@since_4_2
def test_the_embedded_zookeeper_is_started_for_the_query_and_keeps_its_progress(
    application: Application,
) -> None:
    application.zookeeper = f"embedded:{application.directory / 'zookeeper'}"
    first = application.stream.put_all(f"first {number}" for number in range(10))
    assert application.run("one") == sorted(first)
    second = application.stream.put_all(f"second {number}" for number in range(10))
    assert application.run("two") == sorted(second)


def _last_of(sink: CollectedBatches) -> dict[str, int]:
    last: dict[str, int] = {}
    for row in sink.rows:
        last[row.shard_id] = max(row.number, last.get(row.shard_id, 0))
    return last
