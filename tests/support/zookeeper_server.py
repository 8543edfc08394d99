"""One real ZooKeeper for the whole test run. Tests tell their data apart by the root they use."""

import itertools
import time
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient

from kinesis_spout.zookeeper import EmbeddedZooKeeper

SESSION_TIMEOUT_SECONDS = 20.0
"""No test waits for it. A busy machine may keep a process from telling that it lives for seconds."""
DEADLINE_SECONDS = 120.0

_roots = itertools.count(1)


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper"), tick_millis=200) as server:
        yield server


@pytest.fixture
def fresh_root() -> str:
    return f"root-{next(_roots)}"


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Return once ``condition()`` is true; fail after the deadline."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited {DEADLINE_SECONDS:g} s in vain until {what}"
        time.sleep(0.01)


def end_session(server: EmbeddedZooKeeper, client_id: tuple[int, bytes]) -> None:
    """End a session as if it had expired: by another client that shares it."""
    imposter = KazooClient(hosts=server.connect_string, client_id=client_id)
    imposter.start()
    imposter.stop()
    imposter.close()
