import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from kinesis_spout.storm import ShellSpout, TaskContext
from tests.support.storm.shell_topology import COMPONENTS, ENVIRONMENT, Collected
from tests.support.waiting import wait_until

CONTEXT = TaskContext(topology="words", component="shell", task=1, index=0, parallelism=1)


@contextmanager
def spout(*arguments: str, **settings: Any) -> Iterator[tuple[ShellSpout, Collected]]:
    command = [sys.executable, str(COMPONENTS / "spout.py"), *arguments]
    collected = Collected()
    made = ShellSpout(
        command, fields=("word",), environment=ENVIRONMENT, **{"timeout_seconds": 20.0, **settings}
    )
    made.open({}, CONTEXT, collected)
    made.activate()
    try:
        yield made, collected
    finally:
        made.close()


def test_each_call_gets_the_tuples_of_that_call() -> None:
    with spout("lives", "a", "b") as (shell, collected):
        for _ in range(3):
            shell.next_tuple()
    assert collected.values == [["a"], ["b"]]
    assert len(set(collected.ids)) == 2


def test_acks_and_fails_come_back_with_the_ids_of_the_component() -> None:
    with spout("lives", "a", "b", "what?") as (shell, collected):
        shell.next_tuple()
        shell.next_tuple()
        shell.ack(collected.ids[0])
        shell.fail(collected.ids[1], "no reason")
        shell.deactivate()
        for _ in range(2):
            shell.next_tuple()
    told = [["activate", None], ["ack", {"number": 0}], ["fail", {"number": 1}], ["deactivate", None]]
    assert collected.values[2][0] == told
    assert collected.values[3] == ["b"]


def test_a_process_that_died_is_replaced_and_not_told_of_tuples_that_it_does_not_know() -> None:
    with spout("dies", "a", "poison") as (shell, collected):
        shell.next_tuple()
        shell.next_tuple()
        first = collected.ids[0]

        def begins_anew() -> bool:
            shell.next_tuple()
            return len(collected.values) > 1

        wait_until(begins_anew, "a new process emits")
        shell.ack(first)
        assert collected.metrics["shell.unknown_to_process"].total == 1
        assert collected.metrics["shell.restarts"].total == 1
        assert collected.ids[1] != first
    assert collected.values == [["a"], ["a"]]
    assert "exit code 3" in collected.errors[0]
    assert "cannot stand poison" in collected.errors[0]


def test_an_id_comes_back_as_its_serializer_has_it() -> None:
    program = """if True:
        from kinesis_spout.storm.multilang import Spout
        class Echo(Spout):
            again = b"\\xff"
            def next_tuple(self):
                self.emit([repr(self.again)], id=self.again)
            def fail(self, message_id):
                self.again = message_id + b"!"
        Echo().run()
        """
    shell = ShellSpout(
        [sys.executable, "-c", program], fields=("id",), serializer="msgpack", environment=ENVIRONMENT
    )
    collected = Collected()
    shell.open({}, CONTEXT, collected)
    try:
        shell.next_tuple()
        shell.fail(collected.ids[0], "no reason")
        shell.next_tuple()
    finally:
        shell.close()
    assert collected.values == [["b'\\xff'"], ["b'\\xff!'"]]
    assert collected.errors == []


def test_an_id_that_cannot_be_said_back_ends_the_process_and_not_the_query() -> None:
    with spout("lives", "a", "half", "no number") as (shell, collected):
        for _ in range(3):
            shell.next_tuple()
        assert collected.values == [["a"], ["half"]]
    assert "an id that cannot be said back" in collected.errors[0]


@pytest.mark.usefixtures("hang_clock")
def test_a_process_that_hangs_is_given_up_after_the_time_out() -> None:
    with spout("hangs", "poison") as (shell, collected):
        shell.next_tuple()
    assert "did not end its answer with sync" in collected.errors[0]


def test_a_process_that_talks_and_never_ends_its_answer_is_given_up_after_the_time_out() -> None:
    with spout("lives", "chatters") as (shell, collected):
        shell._shell = replace(shell._shell, timeout_seconds=0.5)  # of its answers: its start may take longer
        shell.next_tuple()
    assert "it went on talking, and did not end its answer with sync for 0.5 s" in collected.errors[0]


def test_a_tuple_for_one_task_fails_at_once() -> None:
    with spout("lives", "direct", "what?") as (shell, collected):
        shell.next_tuple()
        shell.next_tuple()
    assert "cannot emit to a task" in collected.errors[0]
    # It comes again, as the component repeats what fails.
    assert ["fail", {"number": 0}] in collected.values[0][0]
