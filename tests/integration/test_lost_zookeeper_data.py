"""A running consumer whose ZooKeeper comes back: without its data it ends with an error, with it it goes on."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from kinesis_spout.model.errors import ProgressLost
from kinesis_spout.plain.record_spout import RecordSpout
from kinesis_spout.zookeeper import EmbeddedZooKeeper
from tests.support.consumer.world import opened
from tests.support.kinesis.endpoints import KinesisEndpoint
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from kinesis_spout.zookeeper import ZooKeeperCheckpointStore

pytestmark = [pytest.mark.no_second_run, pytest.mark.zookeeper, pytest.mark.endpoint]

SESSION_TIMEOUT_SECONDS = 1.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(tmp_path / "zookeeper", tick_millis=200) as server:
        yield server


class Run:
    """Mutable. One consumer of one stream, which takes the server for any ZooKeeper at that address."""

    def __init__(self, endpoint: KinesisEndpoint, server: EmbeddedZooKeeper, folder: Path) -> None:
        self._client = endpoint.client()
        self.stream = endpoint.create_stream()
        self.handled: list[str] = []
        settings: dict[str, Any] = {
            "stream": self.stream,
            "app": "billing",
            "zookeeper": server.connect_string,
            "session_timeout_seconds": SESSION_TIMEOUT_SECONDS,
            "initial_position": "trim_horizon",
            "commit_interval_seconds": 0.1,
            "region": endpoint.settings.region,
            "endpoint_url": endpoint.settings.endpoint_url,
            "aws_access_key_id": endpoint.settings.aws_access_key_id,
            "aws_secret_access_key": endpoint.settings.aws_secret_access_key,
            "dead_letters": str(folder / "dead-letters"),
        }
        self.spout = RecordSpout(scheme="text", **settings)

    def put(self, name: str) -> None:
        self._client.put_record(StreamName=self.stream, Data=name.encode(), PartitionKey="key")

    def step(self) -> None:
        while (emitted := self.spout.next_tuple()) is not None:
            self.handled.append(emitted.values)
            self.spout.ack(emitted.message_id)

    def handle(self, name: str) -> None:
        """Put a record and wait until it is handled and stored."""
        self.put(name)
        self.step_until(lambda: name in self.handled, f"{name} is handled")
        commits = self.spout.counters.commits
        self.step_until(lambda: self.spout.counters.commits > commits, f"{name} is stored")

    def step_until(self, condition: Callable[[], bool], what: str) -> None:
        def stepped() -> bool:
            self.step()
            return condition()

        wait_until(stepped, what)


@pytest.fixture
def run(moto_server: KinesisEndpoint, server: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[Run]:
    run = Run(moto_server, server, tmp_path)
    with run.spout:
        run.spout.open()
        for number in range(3):
            run.handle(f"before-{number}")
        yield run


def session_of(run: Run) -> int | None:
    """The session that the client holds or would resume; None once it has let it go."""
    consumer, _ = opened(run.spout)
    store = cast("ZooKeeperCheckpointStore", consumer.ports.store)
    session_id: int | None = store._session.client._session_id
    return session_id


def test_a_zookeeper_that_returns_without_its_data_ends_the_consumer(
    run: Run, server: EmbeddedZooKeeper
) -> None:
    """It refuses our session for ever: we have seen later transactions than it has."""
    server.stop()
    shutil.rmtree(server.data_dir / "data")
    server.start()
    with pytest.raises(ProgressLost, match=r"expected the mark .* found no such node.*Restore"):
        run.step_until(lambda: False, "an error")
    run.put("after")
    with pytest.raises(ProgressLost):
        run.spout.next_tuple()
    assert set(run.handled) == {"before-0", "before-1", "before-2"}


def test_a_zookeeper_that_returns_with_its_data_is_used_again(run: Run, server: EmbeddedZooKeeper) -> None:
    server.stop()
    server.start()
    run.handle("after")


def test_a_zookeeper_that_was_away_for_long_is_used_again_in_a_new_session(
    run: Run, server: EmbeddedZooKeeper
) -> None:
    server.stop()
    wait_until(lambda: session_of(run) is None, "the old session is given up")
    server.start()
    run.handle("after")
