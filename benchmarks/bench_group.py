"""What a group of consumers asks of ZooKeeper: when one joins, leaves or is lost, and while nothing happens.

The members are real consumers over a real ZooKeeper, each with a session of its own, in one process; the stream is
in memory, and has nothing in it. A transaction counts as one request, pings are not counted.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from figures import Figure
from kazoo.client import KazooClient

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.consumer.ports import Ports
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.testing import (
    InMemoryDeadLetterSink,
    InMemoryShardGetter,
    InMemoryShardLister,
    InMemoryStream,
)
from kinesis_spout.zookeeper import EmbeddedZooKeeper, Paths, ZooKeeperBackend, ZooKeeperSession

SIZES: Final = ((10, 2), (10, 10), (100, 2), (100, 10), (100, 100), (1_000, 2), (1_000, 10), (1_000, 100))
"""Shards and members."""
_QUICK_SIZES: Final = SIZES[:4]
_REST_SECONDS: Final = 30.0
_DEADLINE_SECONDS: Final = 300.0
_QUIET_SECONDS: Final = 1.0
"""After so long without a request a change is over."""
_SESSION_SECONDS: Final = 40.0


def figures(*, quick: bool) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as directory, EmbeddedZooKeeper(Path(directory)) as server:
        for shards, members in _QUICK_SIZES if quick else SIZES:
            with ExitStack() as opened:
                yield from _Group(server, shards, opened).figures(members)


class _Group:
    """Mutable: the members of one application."""

    def __init__(self, server: EmbeddedZooKeeper, shards: int, opened: ExitStack) -> None:
        self._server = server
        self._stream = InMemoryStream("orders", shards=shards)
        self._shards = shards
        self._opened = opened
        self._members: dict[str, _Member] = {}

    def figures(self, members: int) -> Iterator[Figure]:
        size = f"{self._shards} shards, {members} members"
        for number in range(members):
            self._join(f"member-{number:03}")
        self._settle()
        before = self._requests()
        time.sleep(_REST_SECONDS)
        at_rest = self._since(before)
        yield Figure(
            what=f"{size}: at rest",
            value=at_rest.total() * 60 / _REST_SECONDS,
            unit="requests a minute",
        )
        for name, change in (
            ("one joins", lambda: self._join("late")),
            ("it leaves", lambda: self._leave("late")),
            ("the leader is lost", lambda: self._lose("member-000")),
        ):
            before, owned = self._requests(), self._owners()
            change()
            self._settle()
            asked = self._since(before)
            moved = sum(owner != owned.get(shard_id) for shard_id, owner in self._owners().items())
            yield Figure(
                what=f"{size}: {name}, {moved} shards move",
                value=asked.total(),
                unit="requests",
                note=f"the busiest member {max(asked.values())}",
            )

    def _join(self, name: str) -> None:
        self._members[name] = member = _Member(self._server, self._stream, f"group-{id(self)}", name)
        self._opened.callback(member.close)
        member.start()

    def _leave(self, name: str) -> None:
        self._members.pop(name).close()

    def _lose(self, name: str) -> None:
        """End its session as if it had expired; it begins another one and is back."""
        client_id = self._members[name].session.client.client_id
        imposter = KazooClient(hosts=self._server.connect_string, client_id=client_id)
        imposter.start()
        imposter.stop()
        imposter.close()

    def _owners(self) -> dict[str, str]:
        return {shard_id: name for name, member in self._members.items() for shard_id in member.owned}

    def _requests(self) -> Counter[str]:
        return Counter({name: member.requests for name, member in self._members.items()})

    def _since(self, before: Counter[str]) -> Counter[str]:
        return self._requests() - before

    def _settle(self) -> None:
        """Wait until every shard has an owner, and nobody asks anything any more."""
        until = time.monotonic() + _DEADLINE_SECONDS
        last, since = Counter[str](), time.monotonic()
        while time.monotonic() < until:
            time.sleep(0.05)
            requests = self._requests()
            if requests != last or len(self._owners()) < self._shards:
                last, since = requests, time.monotonic()
            elif time.monotonic() - since > _QUIET_SECONDS:
                return
        raise AssertionError(
            f"the group did not settle: {len(self._owners())} of {self._shards} shards are owned"
        )


class _Member:
    """One consumer, which reads nothing."""

    def __init__(self, server: EmbeddedZooKeeper, stream: InMemoryStream, app: str, name: str) -> None:
        self.session = ZooKeeperSession(server.connect_string, session_timeout_seconds=_SESSION_SECONDS)
        self.requests = 0
        self._count_requests()
        backend = ZooKeeperBackend(self.session, Paths(app=app, stream="orders"), member=name)
        self._consumer = Consumer(
            SpoutConfig.of(stream="orders", app=app, initial_position="trim_horizon"),
            Ports(
                lister=InMemoryShardLister(stream),
                open_getter=lambda shard_id, position: InMemoryShardGetter(stream, shard_id, position),
                store=backend.store,
                coordinator=backend.coordinator,
                group=backend.group,
                dead_letters=InMemoryDeadLetterSink(),
            ),
            message_timeout_seconds=None,
        )

    def _count_requests(self) -> None:
        call = self.session.client._call  # noqa: SLF001 - every request passes here

        def counted(request: Any, answer: Any) -> Any:
            self.requests += 1
            return call(request, answer)

        self.session.client._call = counted  # noqa: SLF001

    @property
    def owned(self) -> frozenset[str]:
        return self._consumer.manager.owned

    def start(self) -> None:
        self._consumer.start(_ReadsNothing())

    def close(self) -> None:
        self._consumer.close()


class _ReadsNothing:
    is_full = False

    def shards_acquired(self, shard_ids: Iterable[str]) -> None:
        pass

    def shards_lost(self, shard_ids: Iterable[str]) -> None:
        pass

    def resumed(self) -> None:
        pass
