"""The contract of the three queue coordinators: for threads, for the tasks of an event loop, and for processes."""

import asyncio
import queue
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from time import monotonic
from typing import Any, Protocol

import pytest

from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.errors import InvalidConfig, StoreUnavailable
from kinesis_spout.recipes import (
    Admission,
    AsyncQueueCoordinator,
    CoalescingCounts,
    QueueCoordinator,
    Turn,
    ZooKeeperQueueCoordinator,
    coalesce_across,
)
from kinesis_spout.recipes.coalescing.key_nodes import KeyNodes, TextLine
from kinesis_spout.recipes.coalescing.line import Answer, Event, Moved, end, request
from kinesis_spout.settings.zookeeper import started_session
from kinesis_spout.testing import ManualClock
from kinesis_spout.zookeeper import EmbeddedZooKeeper, ZooKeeperSession
from kinesis_spout.zookeeper.paths import coalescing_place
from tests.support.waiting import wait_until
from tests.support.zookeeper.server import SESSION_TIMEOUT_SECONDS, end_session

pytestmark = pytest.mark.no_second_run

SOON = 30.0
LONG_LEASE = 60.0
SHORT_LEASE = 0.3


class HandlerError(Exception):
    """What a handler raises here."""


class Caller:
    """One request, made by a thread or task of its own, which the test leads step by step. Mutable."""

    def __init__(self) -> None:
        self._admitted: Future[Admission] = Future()
        self._handling: queue.Queue[bytes | None] = queue.Queue()
        self._verdicts: queue.Queue[bool] = queue.Queue()
        self.turn: Turn[bytes] | None = None
        self.ended: Future[None] = Future()

    @property
    def admission(self) -> Admission:
        return self._admitted.result(SOON)

    def handles(self) -> bytes | None:
        """Wait for what it is to handle next; None: nothing more."""
        return self._handling.get(timeout=SOON)

    def done(self) -> None:
        self._verdicts.put(True)

    def fail(self) -> None:
        self._verdicts.put(False)

    def finish(self) -> None:
        """Have it handle what it handles, and go."""
        self.done()
        assert self.handles() is None
        self.ended.result(SOON)

    @property
    def was_evicted(self) -> bool:
        self.ended.result(SOON)
        assert self.turn is not None
        return self.turn.was_evicted

    # In its thread or task

    def admitted(self, turn: Turn[bytes]) -> None:
        self.turn = turn
        self._admitted.set_result(turn.admission)

    def verdict(self) -> None:
        if not self._verdicts.get(timeout=SOON):
            raise HandlerError

    def handling(self, newest: bytes) -> None:
        self._handling.put(newest)

    def gone(self, error: BaseException | None) -> None:
        self._handling.put(None)
        if error is None or isinstance(error, HandlerError):
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error)
        if not self._admitted.done():
            self._admitted.set_exception(error or AssertionError("not admitted"))


class Coordinators(Protocol):
    """Coordinators that see each other's requests: as many as there may be, or one."""

    unhandled: list[tuple[str, bytes]]

    def call(self, key: str, payload: bytes, timeout_seconds: float | None = None) -> Caller: ...

    def run(self, key: str, payload: bytes, handle: Callable[[bytes], None]) -> Future[Admission]: ...

    def counts(self) -> CoalescingCounts: ...

    def keys(self) -> int: ...

    def renew(self, caller: Caller) -> bool: ...


class _Blocking:
    """Requests of threads."""

    def __init__(self) -> None:
        self.unhandled: list[tuple[str, bytes]] = []
        self._threads: list[threading.Thread] = []

    def next(self) -> Any:
        raise NotImplementedError

    def call(self, key: str, payload: bytes, timeout_seconds: float | None = None) -> Caller:
        caller, coordinator = Caller(), self.next()

        def work() -> None:
            error: BaseException | None = None
            try:
                with coordinator.request(key, payload, timeout_seconds=timeout_seconds) as turn:
                    caller.admitted(turn)
                    for newest in turn:
                        caller.handling(newest)
                        caller.verdict()
            except BaseException as raised:  # noqa: BLE001 - the test looks at it
                error = raised
            caller.gone(error)

        self._start(work)
        return caller

    def run(self, key: str, payload: bytes, handle: Callable[[bytes], None]) -> Future[Admission]:
        result: Future[Admission] = Future()
        coordinator = self.next()

        def work() -> None:
            try:
                result.set_result(coordinator.run(key, payload, handle))
            except BaseException as raised:  # noqa: BLE001
                result.set_exception(raised)

        self._start(work)
        return result

    def renew(self, caller: Caller) -> bool:
        assert caller.turn is not None
        return caller.turn.renew()

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(SOON)
            assert not thread.is_alive()


class InThreads(_Blocking):
    def __init__(self, lease_seconds: float, clock: Clock) -> None:
        super().__init__()
        self._coordinator: QueueCoordinator[str, bytes] = QueueCoordinator(
            lease_seconds=lease_seconds,
            unhandled=lambda key, payload: self.unhandled.append((key, payload)),
            clock=clock,
        )

    def next(self) -> QueueCoordinator[str, bytes]:
        return self._coordinator

    def counts(self) -> CoalescingCounts:
        return self._coordinator.counts

    def keys(self) -> int:
        return len(self._coordinator)

    def close(self) -> None:
        self.join()


class InTasks:
    def __init__(self, lease_seconds: float, clock: Clock) -> None:
        self.unhandled: list[tuple[str, bytes]] = []
        self._loop = asyncio.new_event_loop()
        self._loop.time = clock.monotonic  # type: ignore[method-assign]
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._coordinator: AsyncQueueCoordinator[str, bytes] = AsyncQueueCoordinator(
            lease_seconds=lease_seconds, unhandled=lambda key, payload: self.unhandled.append((key, payload))
        )
        self.futures: list[Future[Any]] = []

    def call(self, key: str, payload: bytes, timeout_seconds: float | None = None) -> Caller:
        caller = Caller()

        async def work() -> None:
            error: BaseException | None = None
            try:
                async with self._coordinator.request(key, payload, timeout_seconds=timeout_seconds) as turn:
                    caller.admitted(turn)
                    for newest in turn:
                        caller.handling(newest)
                        await asyncio.to_thread(caller.verdict)
            except BaseException as raised:  # noqa: BLE001
                error = raised
            caller.gone(error)

        self.futures.append(asyncio.run_coroutine_threadsafe(work(), self._loop))
        return caller

    def run(self, key: str, payload: bytes, handle: Callable[[bytes], None]) -> Future[Admission]:
        async def awaited(newest: bytes) -> None:
            handle(newest)
            await asyncio.sleep(0)

        return asyncio.run_coroutine_threadsafe(self._coordinator.run(key, payload, awaited), self._loop)

    def on_loop(self, ask: Callable[[], Any]) -> Any:
        async def asked() -> Any:
            await asyncio.sleep(0)
            return ask()

        return asyncio.run_coroutine_threadsafe(asked(), self._loop).result(SOON)

    def renew(self, caller: Caller) -> bool:
        assert caller.turn is not None
        return bool(self.on_loop(caller.turn.renew))

    def counts(self) -> CoalescingCounts:
        counts: CoalescingCounts = self.on_loop(lambda: self._coordinator.counts)
        return counts

    def keys(self) -> int:
        return int(self.on_loop(lambda: len(self._coordinator)))

    def close(self) -> None:
        for future in self.futures:
            with suppress(asyncio.CancelledError, Exception):
                future.result(SOON)
        self.on_loop(lambda: None)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SOON)
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


class InProcesses(_Blocking):
    """Each request is made by another session, as by another process."""

    def __init__(
        self, server: EmbeddedZooKeeper, root: str, lease_seconds: float, clock: Clock | None = None
    ) -> None:
        super().__init__()
        self.lease_seconds = lease_seconds
        self._clock = clock
        self.server = server
        self._place = coalescing_place(root, "prices")
        self.coordinators: list[ZooKeeperQueueCoordinator] = []
        self.sessions: list[ZooKeeperSession] = []
        self._used = 0

    def next(self) -> ZooKeeperQueueCoordinator:
        if self._used == len(self.coordinators):
            session = ZooKeeperSession(
                self.server.connect_string,
                session_timeout_seconds=SESSION_TIMEOUT_SECONDS,
                clock=self._clock,
            )
            session.start()
            self.sessions.append(session)
            self.coordinators.append(
                ZooKeeperQueueCoordinator(
                    self._place,
                    session,
                    lease_seconds=self.lease_seconds,
                    unhandled=lambda key, payload: self.unhandled.append((key, payload)),
                )
            )
        self._used += 1
        return self.coordinators[self._used - 1]

    def share(self, processes: int) -> None:
        """Make no more processes than that: requests take turns over them."""
        while len(self.coordinators) < processes:
            self.next()
        self._used = 0
        ready = self.coordinators
        turns = iter(range(1_000_000))
        self.next = lambda: ready[next(turns) % processes]  # type: ignore[method-assign]

    def counts(self) -> CoalescingCounts:
        total = CoalescingCounts()
        for coordinator in self.coordinators:
            counts = coordinator.counts
            for name in CoalescingCounts.__slots__:
                setattr(total, name, getattr(total, name) + getattr(counts, name))
        return total

    def keys(self) -> int:
        return self.coordinators[-1].keys_now()

    def close(self) -> None:
        self.join()
        for session in self.sessions:
            session.close()


Make = Callable[..., Coordinators]


@pytest.fixture(params=["threads", "tasks", pytest.param("processes", marks=pytest.mark.zookeeper)])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    made: list[Any] = []

    def of(lease_seconds: float = LONG_LEASE, clock: Clock | None = None) -> Coordinators:
        clock = clock or SystemClock()
        if request.param == "threads":
            made.append(InThreads(lease_seconds, clock))
        elif request.param == "tasks":
            made.append(InTasks(lease_seconds, clock))
        else:
            server = request.getfixturevalue("zookeeper_server")
            made.append(InProcesses(server, request.getfixturevalue("fresh_root"), lease_seconds, clock))
        found: Coordinators = made[-1]
        return found

    yield of
    for each in made:
        each.close()


@pytest.fixture
def coordinators(make: Make) -> Coordinators:
    return make(LONG_LEASE)


def waits(coordinators: Coordinators, requests: int = 1) -> None:
    wait_until(lambda: coordinators.counts().waited >= requests, f"{requests} wait")


def test_the_second_request_of_a_key_waits_and_is_woken_when_the_first_ends(
    coordinators: Coordinators,
) -> None:
    first = coordinators.call("k", b"1")
    assert (first.handles(), first.admission) == (b"1", Admission.ACCEPTED)
    second = coordinators.call("k", b"2")
    waits(coordinators)
    first.finish()

    # Long before its lease is over, and it has no time-out.
    assert (second.handles(), second.admission) == (b"2", Admission.WAITED)
    second.finish()
    assert coordinators.keys() == 0


def test_a_third_request_is_declined_and_the_waiting_one_is_given_its_payload(
    coordinators: Coordinators,
) -> None:
    first = coordinators.call("k", b"1")
    assert first.handles() == b"1"
    second = coordinators.call("k", b"2")
    waits(coordinators)
    third = coordinators.call("k", b"3")
    assert third.admission is Admission.DECLINED
    assert third.handles() is None
    fourth = coordinators.call("k", b"4")
    assert fourth.admission is Admission.DECLINED
    first.finish()

    assert second.handles() == b"4"
    second.finish()
    counts = coordinators.counts()
    assert (counts.accepted, counts.waited, counts.declined, counts.completed) == (1, 1, 2, 2)


def test_keys_do_not_hold_up_each_other_and_leave_when_they_are_idle(coordinators: Coordinators) -> None:
    one, other = coordinators.call("one", b"1"), coordinators.call("other/../key", b"2")
    assert (one.handles(), other.handles()) == (b"1", b"2")
    assert coordinators.keys() == 2
    one.finish()
    assert coordinators.keys() == 1
    other.finish()
    assert coordinators.keys() == 0


def test_a_worker_whose_lease_is_over_is_taken_over_and_the_end_that_it_reports_is_refused(
    make: Make,
) -> None:
    coordinators = make(SHORT_LEASE)
    first = coordinators.call("k", b"1")
    assert first.handles() == b"1"
    second = coordinators.call("k", b"2")

    assert second.handles() == b"2"
    assert not coordinators.renew(first)
    first.finish()
    assert first.was_evicted
    second.finish()
    counts = coordinators.counts()
    assert (counts.expired, counts.refused) == (1, 1)
    assert coordinators.keys() == 0


def test_a_lease_that_is_renewed_is_not_over(make: Make) -> None:
    clock = ManualClock()
    coordinators = make(0.5, clock)
    first = coordinators.call("k", b"1")
    assert first.handles() == b"1"
    second = coordinators.call("k", b"2", timeout_seconds=1.2)
    waits(coordinators)
    for _ in range(3):
        clock.advance(0.4)
        assert coordinators.renew(first)
    assert second.admission is Admission.TIMED_OUT
    assert coordinators.counts().gave_up == 1
    first.finish()
    assert not first.was_evicted
    assert coordinators.counts().expired == 0


def test_one_that_gives_up_waiting_is_told_so_and_leaves_no_trace(coordinators: Coordinators) -> None:
    first = coordinators.call("k", b"1")
    assert first.handles() == b"1"
    second = coordinators.call("k", b"2", timeout_seconds=0.0)
    assert (second.admission, second.handles()) == (Admission.TIMED_OUT, None)
    first.finish()
    assert coordinators.keys() == 0
    assert coordinators.unhandled == []


def test_what_others_were_declined_for_is_left_to_the_worker_when_the_waiting_one_gives_up(
    make: Make,
) -> None:
    clock = ManualClock()
    coordinators = make(LONG_LEASE, clock)
    first = coordinators.call("k", b"1")
    assert first.handles() == b"1"
    second = coordinators.call("k", b"2", timeout_seconds=0.5)
    waits(coordinators)
    assert coordinators.call("k", b"3").admission is Admission.DECLINED
    clock.advance(0.5)
    assert second.admission is Admission.TIMED_OUT
    first.done()

    assert first.handles() == b"3"
    first.finish()
    assert coordinators.counts().continued == 1
    assert coordinators.keys() == 0


def test_what_was_left_to_a_worker_that_fails_is_handed_back(make: Make) -> None:
    clock = ManualClock()
    coordinators = make(LONG_LEASE, clock)
    first = coordinators.call("k", b"1")
    assert first.handles() == b"1"
    second = coordinators.call("k", b"2", timeout_seconds=0.5)
    waits(coordinators)
    assert coordinators.call("k", b"3").admission is Admission.DECLINED
    clock.advance(0.5)
    assert second.admission is Admission.TIMED_OUT
    first.fail()

    assert first.handles() is None
    first.ended.result(SOON)
    assert coordinators.unhandled == [("k", b"3")]
    assert coordinators.counts().handed_back == 1
    assert coordinators.keys() == 0


def test_the_turn_of_a_worker_that_fails_passes_to_the_one_that_waits(coordinators: Coordinators) -> None:
    first = coordinators.call("k", b"1")
    assert first.handles() == b"1"
    second = coordinators.call("k", b"2")
    waits(coordinators)
    first.fail()

    assert second.handles() == b"2"
    second.finish()
    first.ended.result(SOON)
    assert coordinators.counts().failed == 1


def test_never_two_work_at_a_key_and_the_last_payload_of_each_is_handled(make: Make) -> None:
    coordinators = make(LONG_LEASE)
    requests, keys = 300, 3
    if isinstance(coordinators, InProcesses):
        coordinators.share(3)
        requests = 60
    lock = threading.Lock()
    working: Counter[str] = Counter()
    handled: dict[str, list[int]] = defaultdict(list)
    together: list[str] = []

    def handle_for(key: str) -> Callable[[bytes], None]:
        def handle(newest: bytes) -> None:
            with lock:
                working[key] += 1
                if working[key] > 1:
                    together.append(key)
            with lock:
                handled[key].append(int(newest))
                working[key] -= 1

        return handle

    asked = [
        coordinators.run(f"key-{number % keys}", str(number).encode(), handle_for(f"key-{number % keys}"))
        for number in range(requests)
    ]
    admissions = Counter(each.result(SOON) for each in asked)

    assert together == []
    counts = coordinators.counts()
    assert counts.requested == requests == sum(admissions.values())
    assert counts.completed == counts.accepted + counts.promoted == requests - counts.declined
    assert sum(len(each) for each in handled.values()) == counts.completed
    assert coordinators.keys() == 0


def test_a_lease_must_be_longer_than_nothing(make: Make) -> None:
    with pytest.raises(InvalidConfig, match=r"lease_seconds: expected a number above 0, got 0"):
        make(0.0).call("k", b"1")


@pytest.fixture
def tasks() -> Iterator[InTasks]:
    made = InTasks(LONG_LEASE, SystemClock())
    yield made
    made.close()


def test_a_task_that_is_cancelled_while_it_waits_leaves_no_trace(tasks: InTasks) -> None:
    first = tasks.call("k", b"1")
    assert first.handles() == b"1"
    tasks.call("k", b"2")
    waits(tasks)
    tasks.futures[1].cancel()
    wait_until(lambda: tasks.counts().gave_up == 1, "it gives up")
    first.finish()
    assert tasks.keys() == 0


def test_a_task_that_is_cancelled_while_it_works_passes_its_turn_on(tasks: InTasks) -> None:
    first = tasks.call("k", b"1")
    assert first.handles() == b"1"
    second = tasks.call("k", b"2")
    waits(tasks)
    tasks.futures[0].cancel()
    assert second.handles() == b"2"
    first.done()  # its thread
    second.finish()
    assert tasks.counts().failed == 1


def test_a_task_that_is_cancelled_as_its_turn_comes_hands_back_what_others_rely_on() -> None:
    unhandled: list[tuple[str, int]] = []

    async def scene() -> CoalescingCounts:
        coordinator: AsyncQueueCoordinator[str, int] = AsyncQueueCoordinator(
            unhandled=lambda key, payload: unhandled.append((key, payload))
        )

        async def ask(payload: int) -> None:
            async with coordinator.request("k", payload):
                pass

        async with coordinator.request("k", 1) as first:
            waiting = asyncio.ensure_future(ask(2))
            await asyncio.sleep(0)
            await coordinator.run("k", 3, _unreached)
            for _ in first:
                pass
            waiting.cancel()  # it is woken, and has not run yet
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert len(coordinator) == 0
        return coordinator.counts

    counts = asyncio.run(scene())
    assert unhandled == [("k", 3)]
    assert (counts.promoted, counts.failed, counts.handed_back) == (1, 1, 1)


async def _unreached(payload: int) -> None:
    raise AssertionError(payload)


@pytest.fixture
def processes(zookeeper_server: EmbeddedZooKeeper, fresh_root: str) -> Iterator[InProcesses]:
    made = InProcesses(zookeeper_server, fresh_root, LONG_LEASE)
    yield made
    made.close()


@pytest.mark.zookeeper
def test_the_turn_of_a_process_that_died_passes_on_when_its_session_ends(processes: InProcesses) -> None:
    first = processes.call("k", b"1")
    assert first.handles() == b"1"
    second = processes.call("k", b"2")
    waits(processes)
    end_session(processes.server, processes.sessions[0].client.client_id)

    assert second.handles() == b"2"
    first.finish()
    assert first.was_evicted
    second.finish()
    assert processes.keys() == 0


@pytest.mark.zookeeper
def test_the_payload_of_a_process_that_died_waiting_is_left_to_the_worker(processes: InProcesses) -> None:
    first = processes.call("k", b"1")
    assert first.handles() == b"1"
    second = processes.call("k", b"2")
    waits(processes)
    end_session(processes.server, processes.sessions[1].client.client_id)
    assert second.admission is Admission.DECLINED
    first.done()

    assert first.handles() == b"2"
    first.finish()
    assert processes.keys() == 0


@pytest.mark.zookeeper
def test_a_payload_of_more_bytes_than_agreed_is_refused(processes: InProcesses) -> None:
    coordinator = processes.next()
    with pytest.raises(
        InvalidConfig, match=r"payload: expected at most max_payload_bytes=65536, got 65537 bytes"
    ):
        coordinator.request("k", b"x" * 65_537)
    with pytest.raises(InvalidConfig, match="key: expected 1 to 512 characters, got 0"):
        coordinator.request("", b"x")


@pytest.fixture
def session(zookeeper_server: EmbeddedZooKeeper) -> Iterator[ZooKeeperSession]:
    made = ForgetfulSession(zookeeper_server.connect_string, session_timeout_seconds=SESSION_TIMEOUT_SECONDS)
    made.start()
    yield made
    made.close()


class ForgetfulSession(ZooKeeperSession):
    """Loses the answers to some writes, which take effect, and those to some reads."""

    loses = 0
    loses_reads = 0

    def answer(self, request: Any) -> Any:
        found = super().answer(request)
        if self.loses_reads:
            self.loses_reads -= 1
            raise StoreUnavailable("the connection was lost")
        return found

    def committed(self, request: Any) -> None:
        super().committed(request)
        if self.loses:
            self.loses -= 1
            raise StoreUnavailable("the connection was lost")


@pytest.mark.zookeeper
def test_a_key_that_left_and_came_back_is_not_taken_for_the_one_that_was_read(
    session: ZooKeeperSession, fresh_root: str
) -> None:
    nodes = KeyNodes(coalescing_place(fresh_root, "prices"), session)
    one, two, three = nodes.new_token(), nodes.new_token(), nodes.new_token()
    nodes.change("k", one, lambda line: request(line, one, b"1"))
    seen: list[str] = []

    def slowly(line: TextLine | None) -> Moved[str, bytes]:
        assert line is not None
        seen.append(line.worker)
        if line.worker == one:
            nodes.change("k", one, lambda line: end(line, one, Event.DONE))
            nodes.change("k", two, lambda line: request(line, two, b"2"))
        return request(line, three, b"3")

    assert nodes.change("k", three, slowly).answer is Answer.WAIT
    assert seen == [one, two]
    stored = nodes.read("k")
    assert stored is not None
    assert (stored.line.worker, stored.line.waiting) == (two, three)


@pytest.mark.zookeeper
def test_whoever_waits_asks_again_when_the_connection_is_lost(
    session: ForgetfulSession, fresh_root: str
) -> None:
    nodes = KeyNodes(coalescing_place(fresh_root, "prices"), session)
    token = nodes.new_token()
    nodes.change("k", token, lambda line: request(line, token, b"1"))
    session.loses_reads = 1
    assert nodes.lives(token)
    session.loses_reads = 1
    assert nodes.read("k") is not None
    assert session.loses_reads == 0


@pytest.mark.zookeeper
def test_a_write_whose_answer_was_lost_is_not_made_twice(session: ForgetfulSession, fresh_root: str) -> None:
    coordinator = ZooKeeperQueueCoordinator(coalescing_place(fresh_root, "prices"), session)
    session.loses = 2
    handled: list[bytes] = []
    assert coordinator.run("k", b"1", handled.append) is Admission.ACCEPTED
    assert handled == [b"1"]
    assert session.loses == 0
    counts = coordinator.counts
    assert (counts.accepted, counts.completed, counts.refused) == (1, 1, 0)
    assert coordinator.keys_now() == 0


@pytest.mark.zookeeper
def test_processes_that_give_one_name_meet(zookeeper_server: EmbeddedZooKeeper, fresh_root: str) -> None:
    handled: list[bytes] = []
    hosts = zookeeper_server.connect_string
    coordinators = [
        coalesce_across("prices", zookeeper=hosts, zookeeper_root=fresh_root, max_payload_bytes=4)
        for _ in range(2)
    ]
    one, other = coordinators
    with one.request("k", b"1") as turn:
        assert other.run("k", b"2", handled.append, timeout_seconds=0) is Admission.TIMED_OUT
        handled += list(turn)
    assert other.run("k", b"2", handled.append) is Admission.ACCEPTED
    assert handled == [b"1", b"2"]
    for each in coordinators:
        each.close()
    with pytest.raises(InvalidConfig, match="max_payload_bytes: expected 1 to 524288, got 0"):
        coalesce_across("prices", zookeeper=hosts, zookeeper_root=fresh_root, max_payload_bytes=0)


def test_a_coordinator_that_is_refused_leaves_no_session_behind(
    zookeeper_server: EmbeddedZooKeeper, fresh_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions: list[ZooKeeperSession] = []

    def started(*given: Any) -> tuple[str, ZooKeeperSession]:
        root, session = started_session(*given)
        sessions.append(session)
        return root, session

    monkeypatch.setattr("kinesis_spout.recipes.coalescing.processes.started_session", started)
    hosts = zookeeper_server.connect_string
    with pytest.raises(InvalidConfig, match="lease_seconds"):
        coalesce_across("prices", zookeeper=hosts, zookeeper_root=fresh_root, lease_seconds=0)

    (session,) = sessions
    begun = monotonic()
    with pytest.raises(StoreUnavailable, match="closed by this process"):
        session.ready()
    assert monotonic() - begun < session.session_timeout_seconds, "no connection is waited for"


def test_a_request_of_the_one_that_works_for_its_own_key_is_left_to_it_at_once(make: Make) -> None:
    coordinators = make(LONG_LEASE)
    own: list[Admission] = []
    handled: list[bytes] = []
    found = coordinators
    if isinstance(found, InTasks):

        async def in_task() -> None:
            async with found._coordinator.request("k", b"1") as turn:
                for newest in turn:
                    handled.append(newest)
                    if newest == b"1":
                        own.append(await found._coordinator.run("k", b"2", _nothing))

        asyncio.run_coroutine_threadsafe(in_task(), found._loop).result(SOON)
    else:
        assert isinstance(found, _Blocking)
        coordinator = found.next()

        def handle(newest: bytes) -> None:
            handled.append(newest)
            if newest == b"1":
                own.append(coordinator.run("k", b"2", handled.append))

        coordinator.run("k", b"1", handle)
    assert (own, handled) == ([Admission.DECLINED], [b"1", b"2"])
    assert coordinators.keys() == 0


async def _nothing(_: bytes) -> None:
    await asyncio.sleep(0)


def test_requests_that_have_ended_leave_nothing_behind_in_tasks() -> None:
    async def request_often() -> AsyncQueueCoordinator[int, int]:
        coordinator: AsyncQueueCoordinator[int, int] = AsyncQueueCoordinator()

        async def handle(_: int) -> None:
            await asyncio.sleep(0)

        for number in range(3_000):
            await asyncio.gather(*(coordinator.run(number, each, handle) for each in range(3)))
        return coordinator

    coordinator = asyncio.run(request_often())
    assert coordinator.counts.declined == 3_000
    assert len(coordinator) == len(coordinator._shell._waiting) == 0


def test_requests_that_have_ended_leave_nothing_behind_in_threads() -> None:
    coordinator: QueueCoordinator[int, int] = QueueCoordinator()
    for number in range(3_000):
        coordinator.run(number, 1, lambda _: None)
    assert len(coordinator) == len(coordinator._shell._waiting) == 0


@pytest.mark.zookeeper
def test_waits_that_have_ended_leave_no_watch_behind_in_processes(
    zookeeper_server: EmbeddedZooKeeper, fresh_root: str
) -> None:
    found = InProcesses(zookeeper_server, fresh_root, LONG_LEASE)
    found.share(2)
    for number in range(30):
        first = found.call("k", b"1")
        assert first.handles() == b"1"
        second = found.call("k", b"2")
        waits(found, number + 1)
        first.finish()
        assert second.handles() == b"2"
        second.finish()
    for coordinator, session in zip(found.coordinators, found.sessions, strict=True):
        watches = [watch for each in session.client._data_watchers.values() for watch in each]
        assert len(watches) < 10
        assert not coordinator._nodes._watching
    found.close()
