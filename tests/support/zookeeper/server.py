"""One real ZooKeeper for the whole test run. Tests tell their data apart by the root they use."""

import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from kinesis_spout.zookeeper import EmbeddedZooKeeper

SESSION_TIMEOUT_SECONDS = 20.0
"""No test waits for it. A busy machine may keep a process from telling that it lives for seconds."""

_roots = itertools.count(1)


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper"), tick_millis=200) as server:
        yield server


@pytest.fixture
def fresh_root() -> str:
    return f"root-{next(_roots)}"


def end_session(server: EmbeddedZooKeeper, client_id: tuple[int, bytes]) -> None:
    """End a session as if it had expired: by another client that shares it.

    Its owner reconnects at once. If it does so before the other client's end arrives, that ends nothing; so this
    is repeated until the server knows the session no more, and gives a new one.
    """
    shares_it = True
    while shares_it:
        imposter = KazooClient(hosts=server.connect_string, client_id=client_id)
        imposter.start()
        shares_it = imposter.client_id[0] == client_id[0]
        imposter.stop()
        imposter.close()


def java_processes(data_dir: Path) -> list[int]:
    """Give the processes that the system lists as Java's with this directory's configuration."""
    table = subprocess.run(
        ["ps", "-ww", "-eo", "pid=,stat=,args="], check=True, capture_output=True, text=True
    )
    found = []
    for line in table.stdout.splitlines():
        pid, state, *command = line.split(maxsplit=2)
        is_java = command and command[0].split()[0].endswith("java")
        if is_java and f"{data_dir}/zoo.cfg" in command[0] and not state.startswith("Z"):
            found.append(int(pid))
    return found
