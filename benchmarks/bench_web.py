"""What the web page costs: a page of 1,000 shards, the reading behind it, and a server that nobody looks at.

ZooKeeper is real, and its CPU is not counted; the stream is in memory, so that no lag costs a request.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from figures import Figure, ProcessTree, Step, cpu_seconds

from kinesis_spout.operations.stored_progress import Listener
from kinesis_spout.operations.world import StreamAccess, World
from kinesis_spout.ports import CheckpointWrite
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.testing import InMemoryShardGetter, InMemoryShardLister, InMemoryStream
from kinesis_spout.web.app import build
from kinesis_spout.web.page_settings import PageSettings
from kinesis_spout.zookeeper import EmbeddedZooKeeper, Paths, ZooKeeperBackend, ZooKeeperSession
from shard_state import Checkpoint, Position, SequenceNumber, StartPositions

SHARDS = 1_000
PAGE_MILLIS = 15.0
IDLE_PERCENT = 0.2
_HOME = "/a/billing/orders"
_START = StartPositions(default=Position.trim_horizon())


class OneStream(World):
    """The real world, but for its stream."""

    def __init__(self, stream: InMemoryStream) -> None:
        super().__init__(Listener())
        self._stream = stream

    def stream(self, config: SpoutConfig) -> StreamAccess:
        del config
        return StreamAccess(
            lister=InMemoryShardLister(self._stream),
            open_getter=lambda shard_id, position: InMemoryShardGetter(self._stream, shard_id, position),
        )


def figures(*, quick: bool) -> Iterator[Figure | Step]:
    repeats, idle_seconds = (20, 10.0) if quick else (100, 40.0)
    with tempfile.TemporaryDirectory() as directory, EmbeddedZooKeeper(Path(directory)) as server:
        config = SpoutConfig.of(stream="orders", app="billing", zookeeper=server.connect_string)
        world = OneStream(InMemoryStream("orders", shards=SHARDS))
        app = build(world, config, PageSettings())
        yield Step(f"{SHARDS:,} shards in ZooKeeper")
        with _consumer(world, server.connect_string):
            watched = app.state.pages.watched
            observation = watched.observation("billing", "orders")
            _get(app, _HOME)
            yield Figure(
                what=f"a page of {SHARDS:,} shards, read within the last second",
                value=cpu_seconds(lambda: _kept(observation, app), repeats=repeats) * 1_000,
                unit="ms",
                at_most=PAGE_MILLIS,
            )
            yield Figure(
                what="the same for one of three pages of its table, in another order",
                value=cpu_seconds(lambda: _get(app, f"{_HOME}?sort=-lag&page=2"), repeats=repeats) * 1_000,
                unit="ms",
                at_most=PAGE_MILLIS,
            )
            yield Figure(
                what=f"reading {SHARDS:,} shards from ZooKeeper: once for all browsers, at most once a second",
                value=cpu_seconds(observation._read_stored, repeats=max(3, repeats // 10)) * 1_000,  # noqa: SLF001
                unit="ms",
            )
        watched.close(5.0)
        yield Step("a server that nobody looks at")
        yield Figure(
            what="a server that nobody looks at",
            value=_idle_percent(server.connect_string, idle_seconds),
            unit="% of a core",
            at_most=IDLE_PERCENT,
        )


def _kept(observation: Any, app: Any) -> None:
    for part in (observation._stored, observation._live, observation._listing, observation._lags):  # noqa: SLF001
        part._due_at = float("inf")  # noqa: SLF001 - the reading is another row
    _get(app, _HOME)


def _get(app: Any, address: str) -> None:
    path, _, query = address.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"host", b"127.0.0.1:8080"), (b"accept-encoding", b"gzip")],
        "state": {},
    }
    messages: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        messages.append(message)

    asyncio.run(app(scope, receive, send))
    assert messages[0]["status"] == 200, messages


class _consumer:  # noqa: N801 - used as a function is
    """A consumer that owns every shard, and has stored some progress of each."""

    def __init__(self, world: OneStream, hosts: str) -> None:
        session = ZooKeeperSession(hosts, session_timeout_seconds=20.0)
        self._backend = ZooKeeperBackend(session, Paths(app="billing", stream="orders"))
        stream = world.stream(SpoutConfig.of(stream="orders", app="billing")).lister
        shards = stream.list_shards()
        self._backend.store.open(stream.summary().created, _START, shards)
        self._backend.coordinator.join()
        writes = []
        for shard in shards:
            acquired = self._backend.coordinator.acquire(shard.shard_id, Checkpoint(start=_START.default))
            assert acquired is not None
            holes = ((SequenceNumber(120), SequenceNumber(130)),)
            kept = Checkpoint(
                start=acquired.start, epoch=acquired.epoch, base=SequenceNumber(100), holes=holes
            )
            writes.append(CheckpointWrite(shard_id=shard.shard_id, checkpoint=kept))
        self._backend.store.commit(writes)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._backend.close()


def _idle_percent(hosts: str, seconds: float) -> float:
    command = "from kinesis_spout.cli.app import main; main()"
    server = subprocess.Popen(
        [sys.executable, "-c", command, "web", "--http", "127.0.0.1:0", "--zookeeper", hosts],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr is not None
    tree = ProcessTree(server.pid)
    try:
        address = server.stderr.readline()
        assert address.startswith("the page is at"), address
        time.sleep(2.0)
        used = tree.cpu_seconds()
        time.sleep(seconds)
        return (tree.cpu_seconds() - used) / seconds * 100
    finally:
        server.kill()
        server.wait()
        server.stderr.close()
