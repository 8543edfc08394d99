"""The embedded server: it serves, keeps its data, is shared, is started again, and never outlives its users."""

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from kinesis_spout.model.errors import InvalidConfig, ProgressLost, StoreError, StoreUnavailable
from kinesis_spout.zookeeper import EmbeddedZooKeeper, Login, Paths, ZooKeeperBackend, ZooKeeperSession
from kinesis_spout.zookeeper.embedded_server import DEFAULT_TICK_MILLIS, answer_of_running
from kinesis_spout.zookeeper.java_server import JavaServer, ask, is_free, port_for
from shard_state import Checkpoint, Position
from tests.support.core.shards import everywhere, shards_named
from tests.support.waiting import wait_until
from tests.support.zookeeper.server import java_processes

pytestmark = pytest.mark.zookeeper


@contextmanager
def client_of(server: EmbeddedZooKeeper) -> Iterator[KazooClient]:
    client = KazooClient(hosts=server.connect_string)
    client.start()
    yield client
    client.stop()
    client.close()


def serves(port: int) -> bool:
    return "Mode: standalone" in ask(port, "srvr")


def port_of(server: EmbeddedZooKeeper) -> int:
    return int(server.connect_string.rpartition(":")[2])


def test_it_keeps_its_data_over_a_restart(tmp_path: Path) -> None:
    server = EmbeddedZooKeeper(tmp_path)
    with server, client_of(server) as client:
        client.create("/kept", b"data")
    with server, client_of(server) as client:
        assert client.get("/kept")[0] == b"data"


def test_it_listens_on_loopback_only_and_allows_short_sessions(zookeeper_server: EmbeddedZooKeeper) -> None:
    settings = ask(port_of(zookeeper_server), "conf").splitlines()
    assert zookeeper_server.connect_string.startswith("127.0.0.1:")
    assert "minSessionTimeout=400" in settings
    config = (zookeeper_server.data_dir / "zoo.cfg").read_text()
    assert "clientPortAddress=127.0.0.1\n" in config


def test_it_says_of_itself_what_it_is_while_it_runs_and_is_not_started_for_that(tmp_path: Path) -> None:
    assert answer_of_running(tmp_path / "never") is None
    with EmbeddedZooKeeper(tmp_path):
        assert "Mode: standalone" in str(answer_of_running(tmp_path))
    assert answer_of_running(tmp_path) is None
    assert [each.name for each in tmp_path.iterdir() if each.name == "never"] == []


def test_stopping_ends_the_server_and_may_be_repeated(tmp_path: Path) -> None:
    server = EmbeddedZooKeeper(tmp_path).start()
    port = port_of(server)
    assert serves(port)
    server.stop()
    server.stop()
    wait_until(lambda: not serves(port), "the server is gone")
    with pytest.raises(StoreError, match="start"):
        _ = server.connect_string


def test_it_serves_until_the_last_user_stops_it_whoever_started_it(tmp_path: Path) -> None:
    first, second = EmbeddedZooKeeper(tmp_path).start(), EmbeddedZooKeeper(tmp_path).start()
    port = port_of(first)
    assert port_of(second) == port
    assert (first.started_here, second.started_here) == (True, False)
    first.stop()
    with EmbeddedZooKeeper(tmp_path) as third:
        assert port_of(third) == port
    assert serves(port)
    second.stop()
    assert java_processes(tmp_path) == []


def kill_server(data_dir: Path) -> None:
    """Kill the guard and Java at once."""
    os.killpg(json.loads((data_dir / "server.json").read_text())["pid"], signal.SIGKILL)


def test_a_user_starts_it_again_at_the_same_address_with_its_data(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as first, EmbeddedZooKeeper(tmp_path) as second:
        address = first.connect_string
        with client_of(first) as client:
            client.create("/kept", b"data")
            session = client.client_id
            (killed,) = java_processes(tmp_path)
            kill_server(tmp_path)
            wait_until(lambda: client.connected and client.client_id == session, "the session goes on")
            wait_until(lambda: java_processes(tmp_path) not in ([], [killed]), "it was started again")
            wait_until(lambda: serves(port_of(first)), "it serves")
            assert client.retry(client.get, "/kept")[0] == b"data"
        assert len(java_processes(tmp_path)) == 1
        assert first.connect_string == second.connect_string == address
    assert java_processes(tmp_path) == []


def test_only_java_being_killed_is_noticed_too(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as server:
        (killed,) = java_processes(tmp_path)
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: java_processes(tmp_path) not in ([], [killed]), "it was started again")
        wait_until(lambda: serves(port_of(server)), "it serves")


@contextmanager
def starting_kept_from(data_dir: Path) -> Iterator[None]:
    """Hold the lock that whoever starts the server needs."""
    with (data_dir / "start.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_a_session_follows_where_another_took_the_port_meanwhile(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as server:
        session = ZooKeeperSession(server, session_timeout_seconds=8.0)
        with ZooKeeperBackend(session, Paths(app="billing", stream="orders")) as backend:
            backend.store.open(1.0, everywhere(Position.trim_horizon()), [])
            before = port_of(server)
            with starting_kept_from(tmp_path):
                kill_server(tmp_path)
                wait_until(lambda: is_free(before), "the server is gone")
                taker = socket.create_server(("127.0.0.1", before))
            with taker:
                wait_until(lambda: port_of(server) != before, "it serves elsewhere")
                assert backend.store.load() == {}


@pytest.mark.no_second_run
def test_two_that_start_at_once_start_one_server(tmp_path: Path) -> None:
    servers = [EmbeddedZooKeeper(tmp_path) for _ in range(4)]
    with ThreadPoolExecutor(len(servers)) as pool:
        list(pool.map(EmbeddedZooKeeper.start, servers))
    assert len(java_processes(tmp_path)) == 1
    assert len({server.connect_string for server in servers}) == 1
    assert sum(server.started_here for server in servers) == 1
    for server in servers:
        server.stop()
    assert java_processes(tmp_path) == []


@pytest.mark.no_second_run
def test_a_guarded_server_that_does_not_answer_here_gets_no_second_one_beside_it(tmp_path: Path) -> None:
    """It runs in a container with a network of its own, on the same directory."""
    os.mkfifo(tmp_path / "users")
    guard = os.open(tmp_path / "users", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(StoreError, match="container"):
            EmbeddedZooKeeper(tmp_path, start_timeout_seconds=0.2).start()
    finally:
        os.close(guard)
    assert java_processes(tmp_path) == []


def test_one_that_starts_it_and_does_not_get_ready_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    """It may be suspended."""
    with starting_kept_from(tmp_path), pytest.raises(StoreError, match="another process is starting it"):
        EmbeddedZooKeeper(tmp_path, start_timeout_seconds=0.2).start()


def test_a_server_that_an_older_version_started_is_used_and_gets_no_second_one_beside_it(
    tmp_path: Path,
) -> None:
    """It ends with the process that started it; then a user starts one."""
    read_end, write_end = os.pipe()
    port = port_for(tmp_path)
    guard = JavaServer(tmp_path, DEFAULT_TICK_MILLIS).launch(port, read_end)
    os.close(read_end)
    try:
        (tmp_path / "server.json").write_text(json.dumps({"port": port, "pid": guard.pid}))
        wait_until(lambda: serves(port), "the old one serves")
        with EmbeddedZooKeeper(tmp_path) as server:
            assert not server.started_here
            assert len(java_processes(tmp_path)) == 1
        assert serves(port)
        with EmbeddedZooKeeper(tmp_path) as server:
            os.close(write_end)
            guard.wait(timeout=60)
            wait_until(lambda: server.started_here, "it was started again")
            assert len(java_processes(tmp_path)) == 1
    finally:
        guard.kill()
        guard.wait()
    assert java_processes(tmp_path) == []


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot use its directory .*/file/zookeeper"):
        EmbeddedZooKeeper(tmp_path / "file" / "zookeeper").start()


def test_a_server_that_returns_to_a_directory_that_was_emptied_is_no_fresh_start(tmp_path: Path) -> None:
    folder = tmp_path / "zookeeper"
    with EmbeddedZooKeeper(folder, tick_millis=200) as server:
        session = ZooKeeperSession(server, session_timeout_seconds=3.0)
        with ZooKeeperBackend(session, Paths(app="billing", stream="orders")) as backend:
            backend.store.open(1.0, everywhere(Position.trim_horizon()), shards_named("shardId-000000000000"))
            guard = json.loads((folder / "server.json").read_text())["pid"]
            shutil.rmtree(folder)
            os.killpg(guard, signal.SIGKILL)

            def is_lost() -> bool:
                try:
                    backend.store.load()
                except StoreUnavailable:
                    return False
                except ProgressLost:
                    return True
                return False

            wait_until(is_lost, "the loss is noticed")


def test_a_state_file_that_names_another_server_is_not_believed(
    tmp_path: Path, zookeeper_server: EmbeddedZooKeeper
) -> None:
    (tmp_path / "server.json").write_text(json.dumps({"port": port_of(zookeeper_server), "pid": 1}))
    with EmbeddedZooKeeper(tmp_path) as server:
        assert server.started_here
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
        assert server.started_here


def test_a_server_that_cannot_start_says_why(tmp_path: Path, zookeeper_server: EmbeddedZooKeeper) -> None:
    taken = port_of(zookeeper_server)
    server = EmbeddedZooKeeper(tmp_path, port=taken)
    with pytest.raises(StoreError, match=r"(?s)ended with status.*(Address already in use|BindException)"):
        server.start()
    assert not server.started_here


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


@pytest.mark.no_second_run
def test_progress_outlives_the_server(tmp_path: Path) -> None:
    start = Position.at_timestamp(5.0)
    shard_id = "shardId-000000000000"
    server = EmbeddedZooKeeper(tmp_path)
    for epoch in (1, 2):
        with (
            server,
            ZooKeeperBackend(
                ZooKeeperSession(server.connect_string, session_timeout_seconds=20.0),
                Paths(app="billing", stream="orders"),
            ) as backend,
        ):
            assert backend.store.open(1.0, everywhere(start), shards_named(shard_id)) == everywhere(start)
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
    session = ZooKeeperSession(
        address, session_timeout_seconds=20.0, login=Login(user="billing", password="s3cret")
    )
    with ZooKeeperBackend(session, paths) as backend:
        backend.store.open(1.0, everywhere(Position.trim_horizon()), shards_named("shardId-000000000000"))
    with (
        ZooKeeperBackend(ZooKeeperSession(address, session_timeout_seconds=20.0), paths) as stranger,
        pytest.raises(StoreError, match="credentials") as refused,
    ):
        stranger.store.load()
    assert not refused.value.retriable
    other = Paths(root=fresh_root, app="shipping", stream="orders")
    with ZooKeeperBackend(ZooKeeperSession(address, session_timeout_seconds=20.0), other) as neighbour:
        neighbour.store.open(1.0, everywhere(Position.trim_horizon()), [])
