"""The place of one application on one stream, in memory and in the real ZooKeeper, for the contract tests."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import pytest
from kazoo.client import KazooClient

from kinesis_spout.model.clock import Clock
from kinesis_spout.ports import CheckpointStore, Coordinator, Group
from kinesis_spout.testing import InMemoryProcess, InMemoryZooKeeper, StoreFault
from kinesis_spout.zookeeper import ChunkLimits, EmbeddedZooKeeper, Paths, ZooKeeperBackend, ZooKeeperSession
from tests.support.waiting import wait_until
from tests.support.zookeeper.proxy import ZooKeeperProxy
from tests.support.zookeeper.server import SESSION_TIMEOUT_SECONDS, end_session


class Process(Protocol):
    """One process of the application."""

    @property
    def store(self) -> CheckpointStore: ...

    @property
    def coordinator(self) -> Coordinator: ...

    @property
    def group(self) -> Group: ...

    def close(self) -> None: ...


class Place(Protocol):
    """What the contract tests do to a store from outside."""

    def process(self, member: str) -> Any:
        """Connect another process."""

    def expire(self, process: Any) -> None:
        """End a process's session from outside, and wait until the process knows."""

    def beliefs(self, process: Any) -> Mapping[str, Any]:
        """What a process believes to own."""

    def put_back(self, process: Any, beliefs: Mapping[str, Any]) -> None:
        """Let it believe that again, as if it had slept through all that happened since."""

    def leadership(self, process: Any) -> Any:
        """What a process that leads believes of its term."""

    def put_back_leadership(self, process: Any, belief: Any) -> None:
        """Let it believe that again, once it has learnt that the term is over."""

    def during_acquisition(self, process: Any, act: Callable[[], None]) -> None:
        """Have something happen once the process's next acquisition has read, and has not written."""

    def expire_during_acquisition(self, process: Any) -> None:
        """End the process's session while its next acquisition, which took effect, is under way."""

    def lose_next_answer(self, process: Any) -> None: ...

    def lose_next_request(self, process: Any) -> None: ...

    def put(self, shard_id: str, data: bytes) -> None:
        """Write a checkpoint node by hand."""

    def put_assignment(self, data: bytes) -> None:
        """Write the assignment's node by hand."""

    def put_attachment(self, name: str, data: bytes) -> None:
        """Write the node of an attachment by hand."""

    def remove_owner(self, shard_id: str) -> None:
        """Delete an owner node by hand."""

    def remove_member(self, member: str) -> None:
        """Delete a member node by hand."""

    def forget_begun(self) -> None:
        """Undo the mark that the application has begun."""

    def lose_data(self) -> None:
        """Let everything that is stored be gone."""


class InMemoryPlace:
    def __init__(self) -> None:
        self._zookeeper = InMemoryZooKeeper()

    def process(self, member: str) -> InMemoryProcess:
        return self._zookeeper.process(member)

    def expire(self, process: InMemoryProcess) -> None:
        self._zookeeper.expire(process.coordinator.member)

    def beliefs(self, process: InMemoryProcess) -> Mapping[str, Any]:
        return dict(process.coordinator.owned)

    def put_back(self, process: InMemoryProcess, beliefs: Mapping[str, Any]) -> None:
        process.coordinator.owned.update(beliefs)

    def leadership(self, process: InMemoryProcess) -> None:
        """Nothing: there a process asks each time."""

    def put_back_leadership(self, process: InMemoryProcess, belief: None) -> None:
        pass

    def during_acquisition(self, process: InMemoryProcess, act: Callable[[], None]) -> None:
        del process
        act()  # an acquisition is one step there

    def expire_during_acquisition(self, process: InMemoryProcess) -> None:
        self.expire(process)

    def lose_next_answer(self, process: InMemoryProcess) -> None:
        del process
        self._zookeeper.fail_next(StoreFault.ANSWER_LOST)

    def lose_next_request(self, process: InMemoryProcess) -> None:
        del process
        self._zookeeper.fail_next(StoreFault.REQUEST_LOST)

    def put(self, shard_id: str, data: bytes) -> None:
        self._zookeeper.put(shard_id, data)

    def put_assignment(self, data: bytes) -> None:
        self._zookeeper.assignment = data

    def put_attachment(self, name: str, data: bytes) -> None:
        self._zookeeper.attach(name, data)

    def remove_owner(self, shard_id: str) -> None:
        self._zookeeper.remove_owner(shard_id)

    def remove_member(self, member: str) -> None:
        self._zookeeper.member_names.remove(member)

    def forget_begun(self) -> None:
        self._zookeeper.forget_begun()

    def lose_data(self) -> None:
        self._zookeeper.lose_data()


class RealPlace:
    """In the embedded ZooKeeper; every process reaches it through a proxy of its own."""

    def __init__(self, server: EmbeddedZooKeeper, root: str) -> None:
        self._server = server
        self.paths = Paths(root=root, app="billing", stream="orders")
        self._backends: list[ZooKeeperBackend] = []
        self._proxies: dict[int, ZooKeeperProxy] = {}
        self.client = KazooClient(hosts=server.connect_string)
        self.client.start()

    def process(
        self,
        member: str,
        limits: ChunkLimits | None = None,
        clock: Clock | None = None,
        session_timeout_seconds: float = SESSION_TIMEOUT_SECONDS,
    ) -> ZooKeeperBackend:
        proxy = ZooKeeperProxy(self._server.connect_string)
        backend = ZooKeeperBackend(
            ZooKeeperSession(
                proxy.connect_string, session_timeout_seconds=session_timeout_seconds, clock=clock
            ),
            self.paths,
            member=member,
            limits=limits,
        )
        self._backends.append(backend)
        self._proxies[id(backend)] = proxy
        return backend

    def proxy(self, process: ZooKeeperBackend) -> ZooKeeperProxy:
        return self._proxies[id(process)]

    def expire(self, process: ZooKeeperBackend) -> None:
        client_id = process.session.client.client_id
        end_session(self._server, client_id)
        wait_until(
            lambda: process.session.session_id not in {None, client_id[0]}, "the process has a new session"
        )

    def beliefs(self, process: ZooKeeperBackend) -> Mapping[str, Any]:
        return dict(process.store._ownerships._owned)

    def put_back(self, process: ZooKeeperBackend, beliefs: Mapping[str, Any]) -> None:
        process.store._ownerships._owned.update(beliefs)

    def leadership(self, process: ZooKeeperBackend) -> Any:
        return process.group._term

    def put_back_leadership(self, process: ZooKeeperBackend, belief: Any) -> None:
        wait_until(lambda: process.group._term is not belief, "it has learnt that the term is over")
        process.group._term = belief

    def during_acquisition(self, process: ZooKeeperBackend, act: Callable[[], None]) -> None:
        _before_next(process.session.client, "transaction", act)

    def expire_during_acquisition(self, process: ZooKeeperBackend) -> None:
        _before_next(process.coordinator._ownerships, "claim", lambda: self.expire(process))

    def lose_next_answer(self, process: ZooKeeperBackend) -> None:
        self.proxy(process).lose_next_answer()

    def lose_next_request(self, process: ZooKeeperBackend) -> None:
        self.proxy(process).lose_next_request()

    def put(self, shard_id: str, data: bytes) -> None:
        path = self.paths.shard(shard_id)
        if self.client.exists(path):
            self.client.set(path, data)
        else:
            self.client.create(path, data)

    def put_assignment(self, data: bytes) -> None:
        self.client.set(self.paths.assignment, data)

    def put_attachment(self, name: str, data: bytes) -> None:
        path = self.paths.attachment(name)
        if self.client.exists(path):
            self.client.set(path, data)
        else:
            self.client.create(path, data)

    def remove_owner(self, shard_id: str) -> None:
        self.client.delete(self.paths.owner(shard_id))

    def remove_member(self, member: str) -> None:
        path = self.paths.member(member)
        wait_until(lambda: self.client.exists(path), "with a new session it has joined again")
        self.client.delete(path)

    def lose_data(self) -> None:
        self.client.delete(self.paths.root_node, recursive=True)

    def forget_begun(self) -> None:
        assert json.loads(self.client.get(self.paths.base)[0])["begun"] is True
        self.client.set(self.paths.base, b"")

    def close(self) -> None:
        for backend in self._backends:
            backend.close()
        for proxy in self._proxies.values():
            proxy.close()
        self.client.stop()
        self.client.close()


def _before_next(target: Any, call: str, act: Callable[[], None]) -> None:
    """Have something happen right before the next call of a method."""

    def called(*args: Any) -> Any:
        delattr(target, call)  # the class's own is found again
        act()
        return getattr(target, call)(*args)

    setattr(target, call, called)


@pytest.fixture
def real_place(zookeeper_server: EmbeddedZooKeeper, fresh_root: str) -> Iterator[RealPlace]:
    place = RealPlace(zookeeper_server, fresh_root)
    yield place
    place.close()


@pytest.fixture(params=["memory", pytest.param("zookeeper", marks=pytest.mark.zookeeper)])
def place(request: pytest.FixtureRequest) -> Place:
    """Both kinds of place, one after the other."""
    if request.param == "memory":
        return InMemoryPlace()
    real: RealPlace = request.getfixturevalue("real_place")
    return real
