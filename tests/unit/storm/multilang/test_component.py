"""Components that talk over pipes into which the whole conversation was written before."""

# ruff: noqa: ARG002 - a component is given arguments that it need not use

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.storm.multilang import (
    BasicBolt,
    Bolt,
    CannotContinue,
    Component,
    Spout,
    TupleIn,
)
from kinesis_spout.storm.multilang.channel import Channel, HostPipes
from kinesis_spout.storm.multilang.component import HostLog, codec_named
from kinesis_spout.storm.multilang.frames import CODECS
from kinesis_spout.storm.multilang.protocol import NotOfTheProtocol, tick
from kinesis_spout.storm.multilang.protocol import heartbeat as heartbeat_message

CONTEXT = {"taskid": 3, "task->component": {"1": "words", "3": "split"}}


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    read_fd, write_fd = os.pipe()
    try:
        yield read_fd, write_fd
    finally:
        os.close(read_fd)


class Host:
    """Says all it has to say, and then listens."""

    def __init__(self, pid_dir: Path, codec: str = "json") -> None:
        self.codec = CODECS[codec]
        self.pid_dir = pid_dir

    def talk(self, component: Component, *says: Any) -> list[Any]:
        """Give what the component answers after its pid."""
        handshake = {"conf": {"topology.name": "count"}, "context": CONTEXT, "pidDir": str(self.pid_dir)}
        first, *answers = self.talk_without_handshake(component, handshake, *says)
        assert first == {"pid": os.getpid()}
        return answers

    def talk_without_handshake(self, component: Component, *says: Any) -> list[Any]:
        with pipe() as (in_read, in_write), pipe() as (out_read, out_write):
            os.write(in_write, b"".join(self.codec.encode(each, "test") for each in says))
            os.close(in_write)
            try:
                component.converse(Channel(self.codec, HostPipes(in_read, out_write)))
            finally:
                os.close(out_write)
                self.heard = self.codec.decoder().feed(os.read(out_read, 1 << 20))
        return self.heard


@pytest.fixture(params=sorted(CODECS))
def host(tmp_path: Path, request: pytest.FixtureRequest) -> Host:
    return Host(tmp_path, request.param)


def tup(tuple_id: str, *values: Any) -> dict[str, Any]:
    return {"id": tuple_id, "comp": "words", "stream": "default", "task": 1, "tuple": list(values)}


def emitted(*values: Any, **more: Any) -> dict[str, Any]:
    return {"command": "emit", "tuple": list(values), "need_task_ids": False, **more}


def said(command: str, **more: Any) -> dict[str, Any]:
    return {"command": command, **more}


class Split(BasicBolt):
    def process(self, tup: TupleIn) -> None:
        for word in tup.values[0].split():
            self.emit([word])


class Steps(Bolt):
    """Does for each tuple what its first value says."""

    steps: tuple[Any, ...] = ()

    def process(self, tup: TupleIn) -> None:
        getattr(self, f"do_{tup.values[0]}")(tup)

    def tick(self) -> None:
        self.log("tick")


def test_a_component_answers_the_handshake_with_its_pid_and_an_empty_file(host: Host, tmp_path: Path) -> None:
    bolt = Split()
    assert host.talk(bolt) == []
    assert [path.name for path in tmp_path.iterdir()] == [str(os.getpid())]
    assert (bolt.task_id, bolt.component_id, bolt.conf["topology.name"]) == (3, "split", "count")


def test_a_basic_bolt_anchors_what_it_emits_and_acks(host: Host) -> None:
    assert host.talk(Split(), tup("1", "a b"), tup("2", "c")) == [
        emitted("a", anchors=["1"]),
        emitted("b", anchors=["1"]),
        said("ack", id="1"),
        emitted("c", anchors=["2"]),
        said("ack", id="2"),
    ]


def test_a_basic_bolt_that_raises_reports_it_fails_the_tuple_and_lives_on(host: Host) -> None:
    error, *rest = host.talk(Split(), tup("1", 5), tup("2", "c"))
    assert error["command"] == "error"
    assert error["msg"].startswith("Traceback")
    assert "'int' object has no attribute 'split'" in error["msg"]
    assert rest == [said("fail", id="1"), emitted("c", anchors=["2"]), said("ack", id="2")]


def test_a_bolt_acks_later_and_anchors_to_several(host: Host) -> None:
    class Pairs(Steps):
        waiting: TupleIn | None = None

        def process(self, tup: TupleIn) -> None:
            if self.waiting is None:
                self.waiting = tup
                return
            self.emit([tup.values[0]], anchors=[self.waiting, tup.id], stream="pairs")
            self.ack(self.waiting)
            self.fail(tup)

    assert host.talk(Pairs(), tup("1", "a"), tup("2", "b")) == [
        emitted("b", anchors=["1", "2"], stream="pairs"),
        said("ack", id="1"),
        said("fail", id="2"),
    ]


def test_a_tuple_that_was_acked_is_not_failed_by_what_is_raised_after_it(host: Host) -> None:
    class AcksFirst(Steps):
        def process(self, tup: TupleIn) -> None:
            self.ack(tup)
            raise ValueError("too late")

    ack, error = host.talk(AcksFirst(), tup("1"))
    assert (ack, error["command"]) == (said("ack", id="1"), "error")


def test_tuples_that_come_before_task_ids_wait_their_turn(host: Host) -> None:
    class Asks(BasicBolt):
        def process(self, tup: TupleIn) -> None:
            ids = self.emit(tup.values, need_task_ids=True)
            self.emit([*ids, "went"], task=9)

    answers = host.talk(Asks(), tup("1", "a"), tup("2", "b"), [5, 6], [7])
    assert answers == [
        said("emit", tuple=["a"], anchors=["1"]),
        emitted(5, 6, "went", anchors=["1"], task=9),
        said("ack", id="1"),
        said("emit", tuple=["b"], anchors=["2"]),
        emitted(7, "went", anchors=["2"], task=9),
        said("ack", id="2"),
    ]


def test_a_direct_emit_knows_its_task_without_an_answer(host: Host) -> None:
    class Direct(BasicBolt):
        def process(self, tup: TupleIn) -> None:
            self.log(str(self.emit([], task=9, need_task_ids=True)))

    _, log, _ = host.talk(Direct(), tup("1"))
    assert log["msg"] == "(9,)"


def test_heartbeats_are_answered_before_the_tuples_that_wait(host: Host) -> None:
    assert host.talk(Split(), tup("1", "a"), heartbeat_message("9"))[0] == said("sync")


def test_ticks_are_delivered_and_acked(host: Host) -> None:
    assert host.talk(Steps(), tick("7", 10)) == [said("log", msg="tick"), said("ack", id="7")]


def test_a_value_that_cannot_be_sent_fails_its_tuple_with_the_reason(tmp_path: Path) -> None:
    class Emits(BasicBolt):
        def process(self, tup: TupleIn) -> None:
            self.emit([b"bytes"])

    error, fail = Host(tmp_path).talk(Emits(), tup("1"))
    assert "component 'split': expected values that JSON carries" in error["msg"]
    assert fail == said("fail", id="1")


def test_text_is_no_list_of_values(host: Host) -> None:
    class Emits(BasicBolt):
        def process(self, tup: TupleIn) -> None:
            self.emit("word")

    error, _ = host.talk(Emits(), tup("1"))
    assert "expected the values of a tuple as a list or tuple, got str" in error["msg"]


def test_a_bolt_logs_and_measures(host: Host) -> None:
    class Tells(BasicBolt):
        def initialize(self, conf: dict[str, Any], context: dict[str, Any]) -> None:
            self.log("ready", 3)

        def process(self, tup: TupleIn) -> None:
            self.metrics("words", {"count": 1})
            self.error("not so good")

    assert host.talk(Tells(), tup("1")) == [
        said("log", msg="ready", level=3),
        said("metrics", name="words", params={"count": 1}),
        said("error", msg="not so good"),
        said("ack", id="1"),
    ]


def test_what_the_standard_logging_is_told_goes_to_the_hosts_log(host: Host) -> None:
    logger = logging.getLogger("tests.multilang")

    class Logs(BasicBolt):
        def initialize(self, conf: dict[str, Any], context: dict[str, Any]) -> None:
            logger.addHandler(self.host_log)

        def process(self, tup: TupleIn) -> None:
            logger.warning("low on %s", "disk")

        def close(self) -> None:
            logger.removeHandler(self.host_log)

    assert host.talk(Logs(), tup("1")) == [said("ack", id="1"), said("log", msg="low on disk", level=3)]


def test_halves_of_characters_in_what_a_bolt_says_of_itself_cost_nothing(host: Host) -> None:
    # Python has them in the names of files that are no UTF-8.
    logger = logging.getLogger("tests.multilang")

    class Half(BasicBolt):
        def initialize(self, conf: dict[str, Any], context: dict[str, Any]) -> None:
            logger.addHandler(self.host_log)

        def process(self, tup: TupleIn) -> None:
            logger.warning("no file %s", "\udcff")
            self.log("log \udcff")
            self.error("error \udcff")
            raise OSError("raised \udcff")

        def close(self) -> None:
            logger.removeHandler(self.host_log)

    answers = host.talk(Half(), tup("1"))
    assert [each["msg"].splitlines()[-1] for each in answers[:-1]] == [
        "log ?",
        "error ?",
        "no file ?",
        "OSError: raised ?",
    ]
    assert answers[-1] == said("fail", id="1")


def test_of_too_many_lines_the_oldest_are_dropped_and_counted() -> None:
    log = HostLog()
    for number in range(1_002):
        log.handle(logging.LogRecord("x", logging.INFO, "", 0, str(number), None, None))
    first, second, *_, last = log.taken()
    assert first.msg.startswith("2 lines of the log were dropped")
    assert (second.msg, last.msg) == ("2", "1001")
    assert log.taken() == []


def test_at_the_end_of_its_input_a_component_closes(host: Host) -> None:
    class Closes(Split):
        closed = 0

        def close(self) -> None:
            self.closed += 1
            self.emit(["the last"])

    bolt = Closes()
    assert host.talk(bolt) == [emitted("the last")]
    assert bolt.closed == 1


def test_what_initialize_raises_is_told_and_ends_the_component(host: Host) -> None:
    class Broken(Split):
        def initialize(self, conf: dict[str, Any], context: dict[str, Any]) -> None:
            raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        host.talk(Broken())
    assert "no disk" in host.heard[1]["msg"]


def test_a_component_that_gives_up_says_why_fails_its_tuple_and_ends(host: Host) -> None:
    class GivesUp(BasicBolt):
        def process(self, tup: TupleIn) -> None:
            raise CannotContinue("out of paper")

    with pytest.raises(CannotContinue):
        host.talk(GivesUp(), tup("1"), tup("2"))
    assert host.heard[1:] == [said("error", msg="out of paper"), said("fail", id="1")]


def test_anything_but_a_handshake_first_is_refused(host: Host) -> None:
    with pytest.raises(NotOfTheProtocol, match="expected the hand-shake first, got TupleIn"):
        host.talk_without_handshake(Split(), tup("1"))


def test_a_bolt_refuses_what_is_for_spouts(host: Host) -> None:
    with pytest.raises(NotOfTheProtocol, match="expected a tuple for a bolt, got Next"):
        host.talk(Split(), said("next"))


def test_before_it_runs_a_component_has_nobody_to_talk_to() -> None:
    with pytest.raises(RuntimeError, match="expected a running component"):
        Split().emit(["x"])


class Numbers(Spout):
    """Emits 1, 2 and no more; raises for the ack of 9."""

    number = 0

    def next_tuple(self) -> None:
        if self.number < 2:
            self.number += 1
            self.emit([self.number], id=[self.number])

    def ack(self, message_id: Any) -> None:
        if message_id == 9:
            raise KeyError(message_id)
        self.log(f"ack {message_id}")

    def fail(self, message_id: Any) -> None:
        self.log(f"fail {message_id}")

    def activate(self) -> None:
        self.log("activate")

    def deactivate(self) -> None:
        self.log("deactivate")


def test_a_spout_ends_every_answer_with_a_sync(host: Host) -> None:
    commands = [said("activate"), said("next"), said("ack", id=[1]), said("fail", id="x"), said("deactivate")]
    assert host.talk(Numbers(), *commands) == [
        said("log", msg="activate"),
        said("sync"),
        emitted(1, id=[1]),
        said("sync"),
        said("log", msg="ack [1]"),
        said("sync"),
        said("log", msg="fail x"),
        said("sync"),
        said("log", msg="deactivate"),
        said("sync"),
    ]


def test_a_spout_without_a_tuple_answers_sync_alone(host: Host) -> None:
    assert host.talk(Numbers(), *[said("next")] * 3)[4:] == [said("sync")]


def test_a_spout_that_raises_reports_it_and_lives_on(host: Host) -> None:
    error, *rest = host.talk(Numbers(), said("ack", id=9), said("next"))
    assert "KeyError: 9" in error["msg"]
    assert rest == [said("sync"), emitted(1, id=[1]), said("sync")]


def test_a_spout_waits_for_the_tasks_that_its_tuple_went_to(host: Host) -> None:
    class Asks(Spout):
        def next_tuple(self) -> None:
            self.log(str(self.emit(["x"], id="1", need_task_ids=True)))

    assert host.talk(Asks(), said("next"), [4])[1:] == [said("log", msg="(4,)"), said("sync")]


def test_a_spout_that_gives_up_ends_its_answer_before_it_ends(host: Host) -> None:
    class GivesUp(Spout):
        def next_tuple(self) -> None:
            raise CannotContinue("the well is dry")

    with pytest.raises(CannotContinue):
        host.talk(GivesUp(), said("next"))
    assert host.heard[1:] == [said("error", msg="the well is dry"), said("sync")]


def test_the_serializer_is_chosen_by_argument_or_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert codec_named(None).name == "json"
    monkeypatch.setenv("MULTILANG_SERIALIZER", "msgpack")
    assert codec_named(None).name == "msgpack"
    assert codec_named("json").name == "json"
    with pytest.raises(InvalidConfig, match="serializer: expected json or msgpack, got 'xml'"):
        codec_named("xml")
