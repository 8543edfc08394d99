"""The embedded server: it serves, keeps its data, is shared, and never outlives its owner."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from kinesis_spout.errors import InvalidConfig, StoreError, StoreUnavailable
from kinesis_spout.zookeeper import EmbeddedZooKeeper, Paths, ZooKeeperBackend, ZooKeeperSession
from kinesis_spout.zookeeper import embedded as embedded_module
from shard_state import Checkpoint, Position
from tests.shards import shards_named
from tests.zookeeper_server import wait_until

pytestmark = pytest.mark.zookeeper


@contextmanager
def client_of(server: EmbeddedZooKeeper) -> Iterator[KazooClient]:
    client = KazooClient(hosts=server.connect_string)
    client.start()
    yield client
    client.stop()
    client.close()


def serves(port: int) -> bool:
    return "Mode: standalone" in embedded_module._command(port, "srvr")


def port_of(server: EmbeddedZooKeeper) -> int:
    return int(server.connect_string.rpartition(":")[2])


def test_it_keeps_its_data_over_a_restart(tmp_path: Path) -> None:
    server = EmbeddedZooKeeper(tmp_path)
    with server, client_of(server) as client:
        client.create("/kept", b"data")
    with server, client_of(server) as client:
        assert client.get("/kept")[0] == b"data"


def test_it_listens_on_loopback_only_and_allows_short_sessions(zookeeper_server: EmbeddedZooKeeper) -> None:
    settings = embedded_module._command(port_of(zookeeper_server), "conf").splitlines()
    assert zookeeper_server.connect_string.startswith("127.0.0.1:")
    assert "minSessionTimeout=400" in settings
    config = (zookeeper_server.data_dir / "zoo.cfg").read_text()
    assert "clientPortAddress=127.0.0.1\n" in config


def test_stopping_ends_the_server_and_may_be_repeated(tmp_path: Path) -> None:
    server = EmbeddedZooKeeper(tmp_path).start()
    port = port_of(server)
    assert serves(port)
    server.stop()
    server.stop()
    wait_until(lambda: not serves(port), "the server is gone")
    with pytest.raises(StoreError, match="start"):
        _ = server.connect_string


def test_a_second_one_uses_the_living_server_and_does_not_stop_it(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as first:
        with EmbeddedZooKeeper(tmp_path) as second:
            assert second.connect_string == first.connect_string
            assert (first.owned, second.owned) == (True, False)
        assert serves(port_of(first))


def test_a_state_file_that_names_another_server_is_not_believed(
    tmp_path: Path, zookeeper_server: EmbeddedZooKeeper
) -> None:
    (tmp_path / "server.json").write_text(json.dumps({"port": port_of(zookeeper_server), "pid": 1}))
    with EmbeddedZooKeeper(tmp_path) as server:
        assert server.owned
        assert server.connect_string != zookeeper_server.connect_string


OWNER = """
import os, subprocess, sys, time
from kinesis_spout.zookeeper import EmbeddedZooKeeper

server = EmbeddedZooKeeper(sys.argv[1]).start()
child = subprocess.Popen(["sleep", "100"], close_fds=False)
forked = os.fork()
if forked == 0:
    time.sleep(100)
print(server.connect_string, child.pid, forked, flush=True)
time.sleep(100)
"""


def test_it_dies_with_a_killed_owner_although_other_children_live(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        address, *children = owner.stdout.readline().split()
        port = int(address.rpartition(":")[2])
        try:
            assert serves(port)
            owner.kill()
            owner.wait()
            wait_until(lambda: not serves(port), "the server is gone")
            for child in children:
                os.kill(int(child), 0)  # they live on, and held no end of the pipe
        finally:
            for child in children:
                os.kill(int(child), signal.SIGKILL)
    with EmbeddedZooKeeper(tmp_path) as server:
        assert server.owned


def test_a_server_that_cannot_start_says_why(tmp_path: Path, zookeeper_server: EmbeddedZooKeeper) -> None:
    taken = port_of(zookeeper_server)
    server = EmbeddedZooKeeper(tmp_path, port=taken)
    with pytest.raises(StoreError, match=r"(?s)ended with status.*(Address already in use|BindException)"):
        server.start()
    assert not server.owned


def test_nothing_is_written_to_the_standard_output(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with EmbeddedZooKeeper(tmp_path) as server, client_of(server) as client:
        client.create("/node")
    assert capfd.readouterr() == ("", "")


def test_a_missing_java_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidConfig, match="Java 17"):
        EmbeddedZooKeeper(tmp_path).start()


def test_a_wrong_java_home_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(InvalidConfig, match=f"JAVA_HOME={tmp_path}"):
        EmbeddedZooKeeper(tmp_path).start()


def test_progress_outlives_the_server(tmp_path: Path) -> None:
    start = Position.at_timestamp(5.0)
    shard_id = "shardId-000000000000"
    server = EmbeddedZooKeeper(tmp_path)
    for epoch in (1, 2):
        with (
            server,
            ZooKeeperBackend(
                ZooKeeperSession(server.connect_string, session_timeout_seconds=1.0),
                Paths(app="billing", stream="orders"),
            ) as backend,
        ):
            assert backend.store.open(1.0, start, shards_named(shard_id)) == start
            acquired = backend.coordinator.acquire(shard_id, Checkpoint(start=start))
            assert acquired is not None
            assert acquired.epoch == epoch


def test_a_session_with_nobody_there_says_where_it_looked() -> None:
    session = ZooKeeperSession("127.0.0.1:1", session_timeout_seconds=1.0)
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1 "):
        session.start(timeout_seconds=0.2)


def test_what_is_made_with_a_digest_is_closed_to_others(
    zookeeper_server: EmbeddedZooKeeper, fresh_root: str
) -> None:
    paths = Paths(root=fresh_root, app="billing", stream="orders")
    address = zookeeper_server.connect_string
    session = ZooKeeperSession(address, session_timeout_seconds=1.0, digest="billing:s3cret")
    with ZooKeeperBackend(session, paths) as backend:
        backend.store.open(1.0, Position.trim_horizon(), shards_named("shardId-000000000000"))
    with (
        ZooKeeperBackend(ZooKeeperSession(address, session_timeout_seconds=1.0), paths) as stranger,
        pytest.raises(StoreError, match="credentials") as refused,
    ):
        stranger.store.load()
    assert not refused.value.retriable
    other = Paths(root=fresh_root, app="shipping", stream="orders")
    with ZooKeeperBackend(ZooKeeperSession(address, session_timeout_seconds=1.0), other) as neighbour:
        neighbour.store.open(1.0, Position.trim_horizon(), [])
