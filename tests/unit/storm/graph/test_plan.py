"""Which bolts run together, and what is exchanged."""

from kinesis_spout.storm.graph.component_graph import ComponentGraph
from kinesis_spout.storm.graph.plan import plan_of
from tests.support.storm.scripted_topology import Declared, Scripted, begin


def word_count() -> ComponentGraph:
    builder = begin()
    builder.set_bolt("split", Scripted(fields=["word"]), 4).shuffle_grouping("numbers")
    builder.set_bolt("count", Scripted(fields=["word", "count"]), 4).fields_grouping("split", ["word"])
    builder.set_bolt("report", Scripted()).shuffle_grouping("count")
    return builder.graph()


def test_a_word_count_takes_two_stages_and_one_exchange() -> None:
    plan = plan_of(word_count(), "numbers")
    assert plan.stages == (("numbers", "split"), ("count", "report"))
    assert plan.exchanges == 1
    assert plan.exchanged == {"count"}


def test_a_bolt_runs_after_the_last_exchange_that_its_tuples_pass() -> None:
    builder = begin()
    builder.set_bolt("far", Scripted(fields=["x"])).fields_grouping("numbers", ["value"])
    builder.set_bolt("join", Scripted()).shuffle_grouping("numbers").shuffle_grouping("far")
    plan = plan_of(builder.graph(), "numbers")
    assert plan.stages == (("numbers",), ("far", "join"))
    assert {route.target: route.fused for route in plan.routes["numbers", "default"]} == {
        "far": False,
        "join": False,
    }
    assert [route.fused for route in plan.routes["far", "default"]] == [True]


def test_a_plan_holds_what_the_tuples_of_its_spout_reach_and_nothing_else() -> None:
    builder = begin()
    builder.set_spout("others", Declared())
    builder.set_bolt("only others", Scripted(fields=["x"])).fields_grouping("others", ["value"])
    builder.set_bolt("both", Scripted()).shuffle_grouping("numbers").shuffle_grouping("only others")
    graph = builder.graph()
    assert plan_of(graph, "numbers").stages == (("numbers", "both"),)
    assert plan_of(graph, "others").stages == (("others",), ("only others", "both"))
