from typing import Any

import pytest

from kinesis_spout.storm.multilang.frames import CODECS
from kinesis_spout.storm.multilang.protocol import (
    Ack,
    Activate,
    Deactivate,
    Emit,
    Error,
    Fail,
    Handshake,
    Log,
    Message,
    Metrics,
    Next,
    NotOfTheProtocol,
    Pid,
    Sync,
    TaskIds,
    TupleIn,
    heartbeat,
    log_level,
    parse,
    tick,
)

WIRE: list[tuple[Message, bytes]] = [
    (
        Handshake(conf={"a": 1}, context={"taskid": 3}, pid_dir="/pids"),
        b'{"conf":{"a":1},"context":{"taskid":3},"pidDir":"/pids"}',
    ),
    (
        TupleIn(id="1", component="words", stream="default", task=9, values=["x", 3]),
        b'{"id":"1","comp":"words","stream":"default","task":9,"tuple":["x",3]}',
    ),
    (heartbeat("5"), b'{"id":"5","comp":null,"stream":"__heartbeat","task":-1,"tuple":[]}'),
    (tick("6", 10), b'{"id":"6","comp":"__system","stream":"__tick","task":-1,"tuple":[10]}'),
    (TaskIds((3, 4)), b"[3,4]"),
    (Next(), b'{"command":"next"}'),
    (Activate(), b'{"command":"activate"}'),
    (Deactivate(), b'{"command":"deactivate"}'),
    (Ack(id="1"), b'{"command":"ack","id":"1"}'),
    (Fail(id={"any": "value"}), b'{"command":"fail","id":{"any":"value"}}'),
    (Pid(pid=17), b'{"pid":17}'),
    (Emit(values=[1]), b'{"command":"emit","tuple":[1]}'),
    (
        Emit(values=[1], id="m", stream="s", anchors=["1", "2"], task=4, need_task_ids=False),
        b'{"command":"emit","tuple":[1],"id":"m","stream":"s","anchors":["1","2"],"task":4,"need_task_ids":false}',
    ),
    (Log(msg="hello"), b'{"command":"log","msg":"hello"}'),
    (Log(msg="hello", level=4), b'{"command":"log","msg":"hello","level":4}'),
    (Error(msg="oh"), b'{"command":"error","msg":"oh"}'),
    (Metrics(name="n", params=3), b'{"command":"metrics","name":"n","params":3}'),
    (Sync(), b'{"command":"sync"}'),
]


@pytest.mark.parametrize(("message", "wire"), WIRE, ids=[str(wire) for _, wire in WIRE])
def test_a_message_is_written_and_read_as_the_protocol_has_it(message: Message, wire: bytes) -> None:
    assert CODECS["json"].encode(message, "c") == wire + b"\nend\n"
    (raw,) = CODECS["json"].decoder().feed(wire + b"\nend\n")
    assert parse(raw) == message


@pytest.mark.parametrize(
    ("raw", "emit"),
    [
        ({"anchors": "7"}, Emit(values=[], anchors=["7"])),
        ({"anchors": None, "task": None, "stream": None, "id": None}, Emit(values=[])),
        ({"task": 0}, Emit(values=[])),
        ({"of a later protocol": 1}, Emit(values=[])),
    ],
)
def test_other_forms_that_storm_takes_are_the_same_emit(raw: dict[str, Any], emit: Emit) -> None:
    assert parse({"command": "emit", "tuple": [], **raw}) == emit


@pytest.mark.parametrize(
    ("raw", "wants"),
    [({}, True), ({"need_task_ids": None}, True), ({"need_task_ids": False}, False), ({"task": 3}, False)],
)
def test_an_emit_wants_task_ids_unless_it_is_direct_or_says_not(raw: dict[str, Any], *, wants: bool) -> None:
    emit = parse({"command": "emit", "tuple": [], **raw})
    assert isinstance(emit, Emit)
    assert emit.wants_task_ids is wants


@pytest.mark.parametrize(
    ("level", "said"), [(0, 0), (4, 4), (5, 2), (-1, 2), ("warn", 2), (None, 2), (True, 2)]
)
def test_a_log_level_that_does_not_exist_is_info(level: Any, said: int) -> None:
    assert log_level(Log(msg="x", level=level)) == said


def test_heartbeats_and_ticks_are_told_from_tuples() -> None:
    tuple_in = TupleIn(id="1", component="words", stream="default", task=9, values=[])
    assert (heartbeat("1").is_heartbeat, tick("1", 1).is_heartbeat, tuple_in.is_heartbeat) == (
        True,
        False,
        False,
    )
    assert (heartbeat("1").is_tick, tick("1", 1).is_tick, tuple_in.is_tick) == (False, True, False)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"command": "dance"}, "expected a command (next, activate,"),
        ({"command": ["ack"]}, "expected a command (next, activate,"),
        ({}, "or an array of task ids, got {}"),
        (3, "got 3"),
        ([1, "two"], "got [1, 'two']"),
        ([True], "got [True]"),
        ({"command": "ack"}, "ack: Object missing required field `id`"),
        ({"command": "emit", "tuple": "word"}, "emit: Expected `array`, got `str` - at `$.tuple`"),
        (
            {"command": "emit", "tuple": [], "anchors": [1]},
            "emit: Expected `str`, got `int` - at `$.anchors[0]`",
        ),
        ({"pid": "17"}, "pid: Expected `int`, got `str` - at `$.pid`"),
        ({"command": "x" * 10_000}, "xxx …"),
    ],
)
def test_what_is_no_message_is_refused_with_what_was_expected(raw: object, expected: str) -> None:
    with pytest.raises(NotOfTheProtocol) as caught:
        parse(raw)
    assert expected in str(caught.value)
    assert len(str(caught.value)) < 600
