"""What a task does with a child that another worker has left in the middle."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from kinesis_spout.model.clock import SystemClock
from kinesis_spout.storm import DEFAULT_STREAM
from kinesis_spout.storm.components.tuples import Source, Tuple
from kinesis_spout.storm.hosting import leased_child
from kinesis_spout.storm.hosting.component_reports import ComponentFailed, ComponentReports
from kinesis_spout.storm.hosting.leased_child import ShellTaskSettings
from kinesis_spout.storm.hosting.processes.child_process import ChildSettings
from kinesis_spout.storm.hosting.processes.children import Lease, OwnChildren
from kinesis_spout.storm.hosting.shell_bolt import ShellTask
from kinesis_spout.storm.hosting.talk import ShellComponent, Talk
from kinesis_spout.storm.multilang.conversation import BOLT
from kinesis_spout.storm.multilang.frames import CODECS
from kinesis_spout.storm.multilang.protocol import TupleIn
from kinesis_spout.storm.running.counts import ComponentMetric
from tests.support.storm.shell_topology import ENVIRONMENT, KEY, command
from tests.support.waiting import wait_until

SOURCE = Source("words", DEFAULT_STREAM, 1, ("word",))
CLOCK = SystemClock()


class Told:
    """A collector that remembers."""

    def __init__(self) -> None:
        self.emitted: list[list[Any]] = []
        self.acked: list[str] = []
        self.failed: list[str] = []
        self.errors: list[str] = []
        self.metrics: dict[str, ComponentMetric] = {}

    def emit(self, values: Sequence[Any], anchors: Any = (), stream: str = DEFAULT_STREAM) -> None:
        del anchors, stream
        self.emitted.append(list(values))

    def emit_all(
        self, rows: Iterable[Sequence[Any]], anchors: Any = (), stream: str = DEFAULT_STREAM
    ) -> None:
        for values in rows:
            self.emit(values, anchors, stream)

    def emit_telling_tasks(
        self, values: Sequence[Any], anchors: Any = (), stream: str = DEFAULT_STREAM
    ) -> list[int]:
        self.emit(values, anchors, stream)
        return [7, 8]

    def emit_direct(
        self, task: int, values: Sequence[Any], anchors: Any = (), stream: str = DEFAULT_STREAM
    ) -> None:
        self.emit([task, *values], anchors, stream)

    def ack(self, tup: Tuple) -> None:
        self.acked.append(tup[0])

    def fail(self, tup: Tuple, reason: str | BaseException = "") -> None:
        del reason
        self.failed.append(tup[0])

    def report_error(self, error: BaseException) -> None:
        self.errors.append(str(error))

    def report_metric(self, name: str, value: Any) -> None:
        self.metrics.setdefault(name, ComponentMetric()).report(value)

    def reset_timeout(self, tup: Tuple) -> None:
        raise NotImplementedError

    def is_overdue(self, tup: Tuple) -> bool:
        del tup
        return False


@pytest.fixture
def children() -> Iterator[OwnChildren]:
    made = OwnChildren()
    yield made
    made.close()


def child_settings(how: str) -> ChildSettings:
    return ChildSettings(command=tuple(command(how)), environment=ENVIRONMENT)


def component(children: OwnChildren, how: str, told: Told, timeout_seconds: float = 20.0) -> ShellComponent:
    return ShellComponent(
        key=KEY,
        child=child_settings(how),
        children=children,
        table=BOLT,
        codec=CODECS["json"],
        timeout_seconds=timeout_seconds,
        conf={},
        context={},
        reports=ComponentReports("shell", CLOCK, told.report_metric, told.report_error),
        clock=CLOCK,
    )


def task(children: OwnChildren, how: str, told: Told, timeout_seconds: float = 20.0) -> ShellTask:
    settings = ShellTaskSettings(max_pending=10, message_timeout_seconds=30, tick_seconds=None)
    return ShellTask(component(children, how, told, timeout_seconds), settings, told)


def begun(children: OwnChildren, how: str) -> tuple[Lease, Talk]:
    """Lease a child as a worker does."""
    talk = component(children, how, Told()).lease(20)
    assert isinstance(talk, Talk)
    talk.shake_hands()
    return talk.lease, talk


def run(shell: ShellTask, *words: str) -> None:
    for word in words:
        shell.hand_over(Tuple((word,), SOURCE))
    shell.finish()


def test_a_component_is_told_the_tasks_that_got_its_tuple_and_emits_to_one_directly(
    children: OwnChildren,
) -> None:
    told = Told()
    run(task(children, "asks_for_tasks", told), "a")
    assert told.emitted == [["a"], ["a went to [7, 8]"]]
    children.close()

    aside = OwnChildren()
    run(task(aside, "emits_aside", told), "b")
    aside.close()
    assert told.emitted[2:] == [[9, "b"]]


def test_a_child_that_waits_for_an_answer_that_nobody_can_give_is_replaced(
    children: OwnChildren, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leased_child, "PROBE_SECONDS", 0.5)
    lease, talk = begun(children, "asks_for_tasks")
    talk.say(TupleIn(id="1", component="words", task=1, values=["lost"]))
    until = time.monotonic() + 120
    while not talk.hear(0.1):
        assert time.monotonic() < until
    children.abandon(lease)
    told = Told()
    run(task(children, "asks_for_tasks", told), "a")
    assert told.acked == ["a"]
    assert "worker that it served was lost" in told.errors[0]


def test_a_child_that_talks_and_answers_nothing_is_replaced(children: OwnChildren) -> None:
    lease, talk = begun(children, "only_talks")
    talk.say(TupleIn(id="1", component="words", task=1, values=["lost"]))
    talk.pipes.push()
    children.abandon(lease)
    told = Told()
    other = task(children, "only_talks", told, timeout_seconds=0.5)
    with suppress(ComponentFailed):  # the next one may take longer to begin
        other._begin(None)
    assert "worker that it served was lost" in told.errors[0]


def test_a_child_with_half_a_frame_costs_no_tuple(children: OwnChildren) -> None:
    lease, talk = begun(children, "upper")
    talk.pipes.put(b'{"id": "1", "comp": "words", "str')
    talk.pipes.push()
    children.abandon(lease)
    told = Told()
    run(task(children, "upper", told), "a")
    assert told.acked == ["a"]
    assert told.emitted == [["A"]]


def test_a_child_that_was_never_greeted_is_not_leased_again(children: OwnChildren) -> None:
    lease = children.lease(KEY, child_settings("upper"), 20)
    assert isinstance(lease, Lease)
    children.abandon(lease)
    again = children.lease(KEY, child_settings("upper"), 20)
    assert isinstance(again, Lease)
    assert again.is_fresh
    assert again.pid != lease.pid


def test_a_child_that_fails_again_and_again_is_started_less_and_less_often() -> None:
    class Stopped(SystemClock):
        now = 0.0

        def monotonic(self) -> float:
            return self.now

    clock = Stopped()
    children = OwnChildren(clock)
    settings = ChildSettings(command=("cat",))
    waits = []
    for _ in range(10):
        began = clock.now
        while not isinstance(lease := children.lease(KEY, settings, 0), Lease):
            clock.now += 0.05
        waits.append(round(clock.now - began, 1))
        children.discard(lease, is_proven=False)
    children.close()
    assert waits[:3] == [0.0, 0.1, 0.2]
    assert waits == sorted(waits)
    assert waits[-1] == 10.0


def test_a_run_that_is_over_for_long_loses_its_children() -> None:
    class Late(SystemClock):
        late = 0.0

        def monotonic(self) -> float:
            return super().monotonic() + self.late

    clock = Late()
    children = OwnChildren(clock)
    cat = ChildSettings(command=("cat",))
    first = children.lease(KEY, cat, 20)
    assert isinstance(first, Lease)
    child = children._places[KEY].child
    assert child is not None
    children.release(first, is_proven=True)
    clock.late = 1_000.0
    for_another_spout = msgspec.structs.replace(KEY, spout="another")
    assert isinstance(children.lease(for_another_spout, cat, 20), Lease)
    assert KEY in children._places, "its run goes on"
    of_another_run = msgspec.structs.replace(KEY, run="another")
    assert isinstance(children.lease(of_another_run, cat, 20), Lease)
    wait_until(lambda: not child.is_running(), "the child of the run before has ended")
    children.close()
