"""Which tasks get a tuple, grouping by grouping."""

from collections import Counter
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

import numpy as np
import pytest

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.storm import Stream, Tuple
from kinesis_spout.storm.builder import BoltDeclarer
from kinesis_spout.storm.graph.grouping import stable_hash
from kinesis_spout.storm.local import LocalResult
from kinesis_spout.storm.state.key_values import PartitionState
from tests.support.storm.scripted_topology import (
    SEEN,
    Scripted,
    acks,
    begin,
    given,
    passes_on,
    see,
    singles,
    tasks_by_value,
)

KEYS = [(f"key {number % 7}",) for number in range(70)]


def run(
    wire: Callable[[BoltDeclarer], object], tuples: Sequence[Sequence[Any]], parallelism: int = 4
) -> LocalResult:
    builder = begin()
    wire(builder.set_bolt("bolt", Scripted(acks), parallelism))
    return builder.build().run_local(tuples)


@pytest.mark.parametrize(
    "wire",
    [
        lambda bolt: bolt.shuffle_grouping("numbers"),
        lambda bolt: bolt.local_or_shuffle_grouping("numbers"),
        lambda bolt: bolt.none_grouping("numbers"),
    ],
)
def test_a_grouping_that_does_not_say_which_task_stays_in_the_process(
    wire: Callable[[BoltDeclarer], object],
) -> None:
    builder = begin()
    wire(builder.set_bolt("bolt", Scripted(acks), 4))
    topology = builder.build()

    result = topology.run_local(singles(20))

    assert len(result.acked) == 20
    assert {task for _, task, _ in SEEN} == {2}
    assert topology._programs(4)["numbers"].plan.exchanges == 0


def test_tuples_of_the_same_key_go_to_the_same_task_and_keys_are_spread() -> None:
    run(lambda bolt: bolt.fields_grouping("numbers", ["value"]), KEYS)

    tasks = tasks_by_value("bolt")
    assert all(len(set(each)) == 1 and len(each) == 10 for each in tasks.values())
    assert len({each[0] for each in tasks.values()}) > 1


def test_the_task_of_a_key_is_the_same_at_every_start() -> None:
    run(lambda bolt: bolt.fields_grouping("numbers", ["value"]), KEYS)
    assert {value: each[0] - 2 for value, each in tasks_by_value("bolt").items()} == {
        key: stable_hash((key,)) % 4 for (key,) in KEYS
    }
    stored = [2138990852, 749160980, 2755183147, 1215401592, 2013832146, 2998185358]
    assert [stable_hash((key,)) for key in ("a", b"a", 1, 1.5, None, ("a", 1))] == stored


def test_a_key_of_several_fields_is_all_of_them_in_the_order_of_the_grouping() -> None:
    builder = begin(["a", "b", "c"])
    builder.set_bolt("bolt", Scripted(acks), 5).fields_grouping("numbers", ["c", "a"])
    builder.build().run_local([(a, b, c) for a in range(4) for b in range(3) for c in range(4)])

    tasks: dict[tuple[int, int], set[int]] = {}
    for _, task, (a, _, c) in SEEN:
        tasks.setdefault((c, a), set()).add(task)
    assert tasks == {key: {2 + stable_hash(key) % 5} for key in tasks}
    assert len(set.union(*tasks.values())) > 1


def test_a_key_that_has_no_lasting_hash_fails_its_tuple_with_the_type_named() -> None:
    builder = begin()
    builder.set_bolt("pass", Scripted(passes_on, ["value"])).shuffle_grouping("numbers")
    builder.set_bolt("bolt", Scripted(acks), 4).fields_grouping("pass", ["value"])

    result = builder.build().run_local([([1],), ("good",)])

    assert result.acked == [("good",)]
    assert (
        "expected to group by str, bytes, int, float, None, or tuples of these, got list" in result.reasons[0]
    )
    assert result.reasons[0].startswith("pass: ")


class Letter(StrEnum):
    A = "a"


@pytest.mark.parametrize(
    "equal",
    [
        (1, 1.0, True, np.int64(1), np.uint8(1), np.float32(1), np.bool_(True)),
        (0, -0.0, False, np.float64(-0.0)),
        (0.5, np.float64(0.5), np.float16(0.5)),
        (2**53, float(2**53), np.int64(2**53)),
        ("a", np.str_("a"), Letter.A),
        (b"a", bytearray(b"a"), np.bytes_(b"a")),
        ((1, "a"), (True, np.str_("a")), (np.int32(1), "a")),
    ],
)
def test_keys_that_python_calls_equal_come_to_the_same_task_and_have_one_state(
    equal: tuple[Any, ...],
) -> None:
    assert len({stable_hash((each,)) for each in equal}) == 1
    state = PartitionState(0, 1)
    keys = [(each,) if isinstance(each, tuple) else each for each in equal if not isinstance(each, bytearray)]
    for key in keys:
        state.put(key, state.get(key, 0) + 1)
    assert list(dict(state.items()).values()) == [len(keys)]


def test_a_partial_key_goes_to_one_of_two_tasks_and_is_balanced_between_them() -> None:
    run(lambda bolt: bolt.partial_key_grouping("numbers", ["value"]), [("hot",)] * 100)
    counted = Counter(tasks_by_value("bolt")["hot"])
    assert sorted(counted.values()) == [50, 50]

    run(lambda bolt: bolt.partial_key_grouping("numbers", ["value"]), KEYS)
    assert all(len(set(each)) <= 2 for each in tasks_by_value("bolt").values())


def test_every_partial_key_has_two_tasks_to_go_to_if_there_are_two() -> None:
    for key in range(50):
        run(lambda bolt: bolt.partial_key_grouping("numbers", ["value"]), [(key,)] * 4, parallelism=2)
        assert Counter(tasks_by_value("bolt")[key]) == {2: 2, 3: 2}
    run(lambda bolt: bolt.partial_key_grouping("numbers", ["value"]), [(1,)] * 4, parallelism=1)
    assert Counter(tasks_by_value("bolt")[1]) == {2: 4}


def test_all_tasks_get_every_tuple_and_its_tree_waits_for_all_of_them() -> None:
    def fails_in_the_last(bolt: Scripted, tup: Tuple) -> None:
        if bolt.context.index == 3 and tup[0] == 5:
            bolt.collector.fail(tup, "not here")
        else:
            bolt.collector.ack(tup)

    builder = begin()
    builder.set_bolt("bolt", Scripted(fails_in_the_last), 4).all_grouping("numbers")
    result = builder.build().run_local(singles(10))

    tasks = tasks_by_value("bolt")
    assert {number: sorted(each) for number, each in tasks.items()} == {
        number: [2, 3, 4, 5] for number in range(10)
    }
    assert result.failed[0][0] == (5,)
    assert result.reasons == ["bolt: not here"]


def test_the_task_with_the_lowest_id_gets_every_tuple_of_a_global_grouping() -> None:
    run(lambda bolt: bolt.global_grouping("numbers"), singles(20))
    assert {task for _, task, _ in SEEN} == {2}


def test_a_shuffle_to_a_bolt_of_a_later_stage_takes_its_tasks_in_turn() -> None:
    builder = begin()
    builder.set_bolt("bolt", Scripted(acks), 3).shuffle_grouping("numbers").fields_grouping("pass", ["value"])
    builder.set_bolt("pass", Scripted(passes_on, ["value"])).shuffle_grouping("numbers")
    builder.build().run_local(singles(30))

    assert len(given("bolt")) == 60
    counted = Counter(task for name, task, _ in SEEN if name == "bolt")
    by_key = Counter(2 + stable_hash((number,)) % 3 for number in range(30))
    assert counted - by_key == Counter({2: 10, 3: 10, 4: 10})


def test_a_rebalanced_bolt_gets_equally_many_tuples_in_each_of_its_tasks() -> None:
    result = run(lambda bolt: bolt.rebalance_grouping("numbers"), singles(30), parallelism=3)

    assert len(result.acked) == 30
    assert Counter(task for _, task, _ in SEEN) == {2: 10, 3: 10, 4: 10}


def test_tuples_that_come_one_in_a_micro_batch_are_spread_too() -> None:
    builder = begin()
    builder.set_bolt("bolt", Scripted(acks), 3).rebalance_grouping("numbers")
    local = builder.build().local()
    for number in range(6):
        local.run([(number,)])

    assert Counter(task for _, task, _ in SEEN) == {2: 2, 3: 2, 4: 2}


class Modulo:
    def choose_tasks(self, tasks: Sequence[int], values: Sequence[Any]) -> Sequence[int]:
        return [task for task in tasks if values[0] % (task + 1) == 0]


class Wrong:
    def __init__(self, chosen: Any) -> None:
        self._chosen = chosen

    def choose_tasks(self, tasks: Sequence[int], values: Sequence[Any]) -> Sequence[int]:
        del tasks, values
        chosen: Sequence[int] = self._chosen
        return chosen


def test_a_custom_grouping_chooses_any_tasks_or_none() -> None:
    result = run(lambda bolt: bolt.custom_grouping("numbers", Modulo()), singles(13))

    assert len(result.acked) == 13
    assert {number: sorted(each) for number, each in tasks_by_value("bolt").items()} == {
        number: expected
        for number in range(13)
        if (expected := [task for task in (2, 3, 4, 5) if number % (task + 1) == 0])
    }


@pytest.mark.parametrize("chosen", [[1], [99], None, 2, ["2"]])
def test_a_custom_grouping_that_names_no_task_of_the_subscriber_is_told_which_there_are(chosen: Any) -> None:
    with pytest.raises(InvalidConfig, match=r"choose_tasks of Wrong .* ids of tasks \(2, 3, 4, 5\), got "):
        run(lambda bolt: bolt.custom_grouping("numbers", Wrong(chosen)), singles(1))


def test_a_grouping_that_raises_fails_the_tuple_and_sends_it_to_nobody() -> None:
    builder = begin()
    builder.set_bolt("pass", Scripted(passes_on, ["value"])).shuffle_grouping("numbers")
    builder.set_bolt("beside", Scripted(acks)).shuffle_grouping("pass")
    builder.set_bolt("bolt", Scripted(acks), 2).custom_grouping("pass", Wrong([77]))

    result = builder.build().run_local(singles(3))

    assert len(result.failed) == 3
    assert given("beside") == given("bolt") == []


def test_emit_direct_names_the_task() -> None:
    def to_parity(bolt: Scripted, tup: Tuple) -> None:
        tasks = bolt.context.tasks["bolt"]
        bolt.collector.emit_direct(tasks[tup[0] % 2], tup.values, tup, "pick")
        bolt.collector.ack(tup)

    builder = begin()
    builder.set_bolt(
        "route", Scripted(to_parity, {"pick": Stream(("value",), direct=True)})
    ).shuffle_grouping("numbers")
    builder.set_bolt("bolt", Scripted(acks), 2).direct_grouping("route", "pick")
    result = builder.build().run_local(singles(10))

    assert len(result.acked) == 10
    assert tasks_by_value("bolt") == {number: [3 + number % 2] for number in range(10)}
    assert result.emitted["route"] == {"pick": [(number,) for number in range(10)]}


def test_emit_direct_to_a_task_that_does_not_subscribe_names_those_that_do() -> None:
    def to_itself(bolt: Scripted, tup: Tuple) -> None:
        bolt.collector.emit_direct(bolt.context.task, tup.values, tup, "pick")

    builder = begin()
    builder.set_bolt(
        "route", Scripted(to_itself, {"pick": Stream(("value",), direct=True)})
    ).shuffle_grouping("numbers")
    builder.set_bolt("bolt", Scripted(acks), 2).direct_grouping("route", "pick")

    (reason,) = builder.build().run_local(singles(1)).reasons

    assert reason == (
        "route: InvalidConfig: component 'route': expected emit_direct to a task that subscribes to stream 'pick' "
        "(3, 4), got 2"
    )


def test_emit_telling_tasks_says_which_tasks_a_tuple_went_to() -> None:
    def tells(bolt: Scripted, tup: Tuple) -> None:
        see("told", 0, bolt.collector.emit_telling_tasks(tup.values, tup))
        bolt.collector.ack(tup)

    builder = begin()
    builder.set_bolt("tell", Scripted(tells, ["value"])).shuffle_grouping("numbers")
    builder.set_bolt("all", Scripted(acks), 2).all_grouping("tell")
    builder.set_bolt("near", Scripted(acks), 2).shuffle_grouping("tell")
    builder.build().run_local(singles(1))

    assert [sorted(each) for each in given("told")] == [[3, 4, 5]]
