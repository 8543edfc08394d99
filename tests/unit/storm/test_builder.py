"""What a builder refuses: one error, which names what is wrong."""

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import pytest

from kinesis_spout import KinesisSpout
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.storm import (
    BasicBolt,
    CombinerBolt,
    KeyValueState,
    StatefulBolt,
    Stream,
    TopologyBuilder,
    Tuple,
)
from kinesis_spout.storm.graph.plan import MOST_FUSED
from tests.support.storm.scripted_topology import Declared, Scripted, acks, begin


class Counts(StatefulBolt):
    def init_state(self, state: KeyValueState) -> None:
        self.state = state

    def execute(self, tup: Tuple) -> None:
        self.collector.ack(tup)


class First:
    """A grouping that chooses the first task."""

    def choose_tasks(self, tasks: Sequence[int], values: Sequence[Any]) -> Sequence[int]:
        del values
        return tasks[:1]


class LooksLikeOne:
    def next_tuple(self) -> None:
        raise AssertionError("it is no spout")


def kinesis() -> KinesisSpout:
    return KinesisSpout(stream="s", app="a")


class Often(Scripted):
    tick_seconds = -1.0


DIRECT = {"pick": Stream(("value",), direct=True)}


def twice(to: TopologyBuilder) -> None:
    spout = Declared()
    to.set_spout("a", spout)
    to.set_spout("b", spout)


def direct_from_spout(to: TopologyBuilder) -> None:
    to.set_spout("s", Declared(DIRECT))
    to.set_bolt("b", Scripted()).direct_grouping("s", "pick")


WRONG: dict[str, tuple[Callable[[TopologyBuilder], Any], str]] = {
    "an unknown component": (
        lambda to: to.set_bolt("a", Scripted()).shuffle_grouping("numbrs"),
        r"bolt 'a': expected a grouping on a component of the topology \(a, numbers\), got 'numbrs'",
    ),
    "an unknown stream": (
        lambda to: to.set_bolt("a", Scripted()).shuffle_grouping("numbers", "odd"),
        r"bolt 'a': expected a grouping on a stream that 'numbers' declares \(default\), got 'odd'",
    ),
    "a stream of a component that declares none": (
        lambda to: (
            to.set_bolt("a", Scripted()).shuffle_grouping("numbers"),
            to.set_bolt("b", Scripted()).shuffle_grouping("a"),
        ),
        r"bolt 'b': .* 'a' declares \(none: declare_output_fields gives no fields\), got 'default'",
    ),
    "state behind a global grouping": (
        lambda to: to.set_bolt("a", Counts()).global_grouping("numbers"),
        r"expected fields_grouping .* a state for all is behind a field that is always the same; got global",
    ),
    "an unknown field": (
        lambda to: to.set_bolt("a", Scripted()).fields_grouping("numbers", ["value", "valu"]),
        r"bolt 'a': expected a grouping by fields of 'numbers', stream 'default' \(value\), got 'valu'",
    ),
    "a field to combine by that is not there": (
        lambda to: to.set_bolt("a", CombinerBolt(["value"], value="weight")).shuffle_grouping("numbers"),
        r"bolt 'a': expected 'numbers', stream 'default', to have the field 'weight', .*; got value$",
    ),
    "a cycle": (
        lambda to: (
            to.set_bolt("a", Scripted(acks, ["x"])).shuffle_grouping("numbers").shuffle_grouping("c"),
            to.set_bolt("b", Scripted(acks, ["x"])).shuffle_grouping("a"),
            to.set_bolt("c", Scripted(acks, ["x"])).shuffle_grouping("b"),
            to.set_bolt("behind", Scripted()).shuffle_grouping("c"),
        ),
        r"without cycles, in which tuples come to an end; got a > b > c > a$",
    ),
    "a bolt that subscribes to itself": (
        lambda to: to.set_bolt("a", Scripted(acks, ["x"])).shuffle_grouping("a"),
        r"got a > a$",
    ),
    "an id twice": (
        lambda to: to.set_bolt("numbers", Scripted()),
        r"expected ids that are unique, got 'numbers' for a second component",
    ),
    "an id of the system": (lambda to: to.set_bolt("__a", Scripted()), r"not beginning with __, got '__a'"),
    "no id": (lambda to: to.set_bolt("", Scripted()), r"expected an id for a component.* got ''"),
    "state by a shuffle": (
        lambda to: to.set_bolt("count", Counts()).shuffle_grouping("numbers"),
        r"bolt 'count': expected fields_grouping for a bolt with state.*; got shuffle on 'numbers'",
    ),
    "state by a partial key": (
        lambda to: to.set_bolt("count", Counts()).partial_key_grouping("numbers", ["value"]),
        r"bolt 'count': expected fields_grouping .* got partial_key by value on 'numbers'",
    ),
    "a direct stream by a shuffle": (
        lambda to: (
            to.set_bolt("a", Scripted(acks, DIRECT)).shuffle_grouping("numbers"),
            to.set_bolt("b", Scripted()).shuffle_grouping("a", "pick"),
        ),
        r"bolt 'b': expected direct_grouping, because it is declared as direct, got shuffle on 'a', stream 'pick'",
    ),
    "a direct stream of a spout": (
        direct_from_spout,
        r"bolt 'b': expected a direct stream of a bolt, because a spout cannot .* got 's', stream 'pick'",
    ),
    "a direct grouping on a stream that is not": (
        lambda to: to.set_bolt("a", Scripted()).direct_grouping("numbers"),
        r"bolt 'a': expected another grouping, because no stream.*got direct on 'numbers', stream 'default'",
    ),
    "a bolt without inputs": (
        lambda to: to.set_bolt("a", Scripted()),
        r"bolt 'a': expected a grouping that says where its tuples come from, got none",
    ),
    "a stream twice": (
        lambda to: to.set_bolt("a", Scripted()).shuffle_grouping("numbers").global_grouping("numbers"),
        r"bolt 'a': expected one grouping on 'numbers', stream 'default', got another",
    ),
    "fields as text": (
        lambda to: to.set_bolt("a", Scripted()).fields_grouping("numbers", "value"),
        r"expected the fields to group by, as in \[\"word\"\], got 'value'",
    ),
    "no fields": (lambda to: to.set_bolt("a", Scripted()).fields_grouping("numbers", []), r"got \[\]"),
    "fields that are no names": (
        lambda to: to.set_bolt("a", Scripted()).fields_grouping("numbers", 5),  # type: ignore[arg-type]
        r"expected the fields to group by.* got 5",
    ),
    "a custom grouping without its method": (
        lambda to: to.set_bolt("a", Scripted()).custom_grouping("numbers", object()),  # type: ignore[arg-type]
        r"expected a custom grouping with choose_tasks\(tasks, values\), got object",
    ),
    "an option under its name in Storm": (
        lambda to: to.build(conf={"topology.message.timeout.secs": 60, "mine": 1}),
        r"topology: conf: expected the option message_timeout_seconds of build in place of 'topology.message",
    ),
    "an option of a bolt under its name in Storm": (
        lambda to: to.set_bolt("a", Scripted(), conf={"topology.tick.tuple.freq.secs": 1}),
        r"bolt 'a': conf: expected tick_seconds of a bolt in place of 'topology.tick.tuple.freq.secs'",
    ),
    "a class for a bolt": (
        lambda to: to.set_bolt("a", Scripted),  # type: ignore[arg-type]
        r"bolt 'a': expected a Bolt \(.*\), got the class Scripted, not an object of it",
    ),
    "something else for a bolt": (
        lambda to: to.set_bolt("a", Declared()),  # type: ignore[arg-type]
        r"bolt 'a': expected a Bolt \(one of pystorm or streamparse goes into a ShellBolt\), got Declared",
    ),
    "a class for a spout": (
        lambda to: to.set_spout("s", Declared),  # type: ignore[arg-type]
        r"spout 's': expected a KinesisSpout or a Spout of your own, .* got the class Declared",
    ),
    "a bolt for a spout": (
        lambda to: to.set_spout("s", Scripted()),  # type: ignore[arg-type]
        r"spout 's': expected a KinesisSpout or a Spout of your own, .* got Scripted",
    ),
    "what only looks like a spout": (
        lambda to: to.set_spout("s", LooksLikeOne()),  # type: ignore[arg-type]
        r"spout 's': .* a subclass of kinesis_spout.storm.Spout, got LooksLikeOne",
    ),
    "a spout of one's own under two ids": (
        twice,
        r"spout 'b': expected a spout of its own, got the Declared that is the spout 'a', too: .* make two",
    ),
    "no fields of a KinesisSpout": (
        lambda to: to.set_spout("s", kinesis(), fields=[]),
        r"spout 's': expected the names of what its scheme makes of a record.* got \[\]",
    ),
    "the fields of a KinesisSpout as text": (
        lambda to: to.set_spout("s", kinesis(), fields="line"),
        r"spout 's': expected the names of what its scheme makes of a record.* got 'line'",
    ),
    "streams of a KinesisSpout": (
        lambda to: to.set_spout("s", kinesis(), fields={"other": ["line"]}),  # type: ignore[arg-type]
        r"spout 's': expected the names of what its scheme makes of a record.* got {'other'",
    ),
    "conf of a spout that is none": (
        lambda to: to.set_spout("s", Declared(), conf=5),  # type: ignore[arg-type]
        r"spout 's': expected a mapping as in conf={\"name\": value}, got 5",
    ),
    "conf of a bolt that is none": (
        lambda to: to.set_bolt("a", Scripted(), conf=["x"]),  # type: ignore[arg-type]
        r"bolt 'a': expected a mapping as in conf=.* got \['x'\]",
    ),
    "too many tasks": (
        lambda to: to.set_bolt("a", Scripted(), 10_001),
        r"bolt 'a': expected a parallelism of 1 or more, at most 10,000, got 10001",
    ),
    "a class for a custom grouping": (
        lambda to: to.set_bolt("a", Scripted()).custom_grouping("numbers", First),  # type: ignore[arg-type]
        r"expected a custom grouping .* got the class First, not an object of it",
    ),
    "a component instead of its id": (
        lambda to: to.set_bolt("a", Scripted()).shuffle_grouping(["numbers"]),  # type: ignore[arg-type]
        r"expected the id of a component, and of a stream .* got \['numbers'\], 'default'",
    ),
    "fields in place of a stream": (
        lambda to: to.set_bolt("a", Scripted()).shuffle_grouping("numbers", ["value"]),  # type: ignore[arg-type]
        r"expected the id of a component, and of a stream .* got 'numbers', \['value'\]",
    ),
    "fields for a spout that declares its own": (
        lambda to: to.set_spout("s", Declared(), fields=["a"]),
        r"spout 's': expected fields only for a KinesisSpout, got \['a'\]",
    ),
    "no tasks": (
        lambda to: to.set_bolt("a", Scripted(), 0),
        r"bolt 'a': expected a parallelism of 1 or more, at most 10,000, got 0",
    ),
    "a parallelism that is no number": (lambda to: to.set_bolt("a", Scripted(), True), r"got True"),
    "ticks before their time": (
        lambda to: to.set_bolt("a", Often()),
        r"bolt 'a': expected tick_seconds of 0 or more, or None, got -1.0",
    ),
    "output fields as text": (
        lambda to: to.set_bolt("a", Scripted(acks, "word")).shuffle_grouping("numbers"),
        r"component 'a', stream 'default': expected the names of its fields in their order.* got 'word'",
    ),
    "output fields without an order": (
        lambda to: to.set_bolt("a", Scripted(acks, {"b": {"x", "y"}})).shuffle_grouping("numbers"),  # type: ignore[dict-item]
        r"component 'a', stream 'b': expected the names of its fields in their order",
    ),
    "output fields that are none": (
        lambda to: to.set_bolt("a", Scripted(acks, 5)).shuffle_grouping("numbers"),  # type: ignore[arg-type]
        r"component 'a', stream 'default': expected the names .* got 5",
    ),
    "a field twice": (
        lambda to: to.set_bolt("a", Scripted(acks, ["x", "y", "x"])).shuffle_grouping("numbers"),
        r"component 'a', stream 'default': expected each field once, got x twice",
    ),
    "a stream of the system": (
        lambda to: to.set_bolt("a", Scripted(acks, {"__tick": ["x"]})).shuffle_grouping("numbers"),
        r"component 'a': expected ids of streams that do not begin with __, got '__tick'",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_work_is_refused_with_its_name(name: str) -> None:
    wire, message = WRONG[name]
    builder = begin()

    def build() -> None:
        wire(builder)
        builder.build()

    with pytest.raises(InvalidConfig, match=message) as refused:
        build()
    assert "\n" not in str(refused.value)


def test_a_topology_needs_a_spout() -> None:
    with pytest.raises(
        InvalidConfig, match="expected a topology with a spout, got none: call set_spout first"
    ):
        TopologyBuilder().build()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"state_guarantee": "at_most_once"},
            'option state_guarantee .*: expected "exactly_once" or "at_least_once", got \'at_most_once\'',
        ),
        ({"acker": 1}, r"expected an option of a topology .* got 'acker'; did you mean 'ackers'"),
        (
            {"ackers": -1},
            "option ackers of a topology: expected a whole number from 0 to 10,000, or None, got -1",
        ),
        (
            {"partitions": 0},
            "option partitions of a topology: expected a whole number from 1 to 10,000, or None, got 0",
        ),
        (
            {"message_timeout_seconds": 0},
            "option message_timeout_seconds .*a number of seconds above 0, at most 1,000,000, got 0",
        ),
        ({"max_spout_pending": "many"}, "option max_spout_pending .*a whole number from 1, got 'many'"),
        ({"state": 5}, "option state of a topology: expected an address such as .*, or None, got 5"),
        (
            {"message_timeout_seconds": float("inf")},
            "option message_timeout_seconds .*a number of seconds above 0, at most 1,000,000, got inf",
        ),
        (
            {"partitions": 10**9},
            "option partitions .*a whole number from 1 to 10,000, or None, got 1000000000",
        ),
        ({"ackers": 10**9}, "option ackers .*a whole number from 0 to 10,000, or None, got 1000000000"),
        ({"conf": 5}, "topology: expected a mapping as in conf=.* got 5"),
        ({"name": ""}, r"expected a name for the topology, got ''"),
    ],
)
def test_options_that_are_not_allowed_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        begin().build(**options)


def test_a_bolt_that_cannot_be_pickled_is_named_before_anything_runs() -> None:
    builder = begin()
    bolt = Scripted()
    bolt.held = Lock()  # type: ignore[assignment]
    builder.set_bolt("sink", bolt).shuffle_grouping("numbers")
    with pytest.raises(
        InvalidConfig, match="bolt 'sink': expected an object that can be pickled, got TypeError"
    ):
        builder.build().local()


def test_task_ids_go_up_from_one_in_the_order_the_components_were_set() -> None:
    builder = begin()
    builder.set_bolt("b", Scripted(acks, ["x"]), 3).shuffle_grouping("numbers")
    builder.set_bolt("a", Scripted(), 2).shuffle_grouping("b")
    assert builder.graph().tasks == {"numbers": (1,), "b": (2, 3, 4), "a": (5, 6)}


def test_a_row_of_fused_bolts_that_python_cannot_call_is_refused_and_the_longest_one_runs() -> None:
    class PassesOn(BasicBolt):
        def declare_output_fields(self) -> list[str]:
            return ["value"]

        def process(self, tup: Tuple) -> None:
            self.emit([tup["value"]])

    def row(bolts: int) -> TopologyBuilder:
        builder = begin()
        before = "numbers"
        for number in range(bolts):
            builder.set_bolt(f"bolt {number}", PassesOn()).shuffle_grouping(before)
            before = f"bolt {number}"
        return builder

    with pytest.raises(InvalidConfig, match="bolt 'bolt 150': expected at most 150 bolts in a row"):
        row(MOST_FUSED + 1).build()
    assert row(MOST_FUSED).build().run_local([(1,)]).acked == [(1,)]
    two_rows = row(MOST_FUSED)
    two_rows.set_bolt("elsewhere", PassesOn()).fields_grouping("bolt 149", ["value"])
    assert two_rows.build().run_local([(1,)]).acked == [(1,)]
