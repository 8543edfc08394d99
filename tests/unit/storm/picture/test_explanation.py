"""A topology is explained for people and for programs."""

from typing import Any

import pytest

from kinesis_spout.storm import ShellBolt, Topology, TopologyBuilder
from kinesis_spout.storm.picture import Explanation
from tests.unit.storm.picture.sample_graphs import Source, Step, diamond, ten_components, words

WORDS = """\
topology words: 3 components

Tuples of sentences: 2 stages, 1 exchange in a micro-batch

stage 0: as many Spark tasks as the micro-batch has packs
  sentences (spout Source, task 1)
      emits: sentence
  split (bolt Step, 2 tasks: 2-3)
      from sentences: shuffle, in the task that made the tuple
      fused: runs where its source runs; rebalance_grouping spreads it over 2
        tasks
      emits: word

--- exchange: tuples, in blocks by task ----------------------------------------

stage 1: up to 4 Spark tasks
  count (bolt Keeps, 4 tasks: 4-7, keeps state)
      from split: fields by word, through the exchange
      emits: word, count

no ackers: a record is acked when its whole tree of tuples is
"""


def explained(topology: Topology) -> dict[str, Any]:
    return Explanation(topology.name, topology.graph, topology.options).document()


def test_the_word_count_has_two_stages_and_no_ackers() -> None:
    assert words().build("words").explain() == WORDS


@pytest.mark.parametrize("builder", [words, diamond, ten_components])
def test_no_line_is_longer_than_a_terminal_is_wide(builder: type[TopologyBuilder]) -> None:
    lines = builder().build("words").explain().splitlines()
    assert max(map(len, lines)) <= 80
    assert lines == [line.rstrip() for line in lines]


def test_wide_characters_count_as_two_columns_and_none_steers_the_terminal() -> None:
    builder = TopologyBuilder()
    builder.set_spout("數據 來源", Source(["數"]))
    for name in ("處理 " * 12 + "甲", "red \x1b[31m\tand a\nline"):
        builder.set_bolt(name, Step(["數"])).fields_grouping("數據 來源", ["數"])
    text = builder.build("words").explain()
    assert max(len(line) + sum(each > "\u2fff" for each in line) for line in text.splitlines()) <= 80
    assert "red \ufffd[31m\ufffdand a\ufffdline (bolt Step" in text


def test_a_bolt_that_is_rebalanced_is_spread_and_needs_no_hint() -> None:
    builder = TopologyBuilder()
    builder.set_spout("orders", Source(["id"]))
    builder.set_bolt("score", Step(["id"]), 8).rebalance_grouping("orders")
    builder.set_bolt("store", Step()).shuffle_grouping("score")
    text = builder.build("scores").explain()
    assert "stage 1: up to 8 Spark tasks\n" in text
    assert "from orders: rebalance, through the exchange\n" in text
    assert "fused" not in text


def test_a_shell_bolt_has_a_process_for_each_task_also_where_it_stays_with_its_source() -> None:
    builder = TopologyBuilder()
    builder.set_spout("orders", Source(["id"]))
    builder.set_bolt("score", ShellBolt(["cat"], fields=["id"]), 8).shuffle_grouping("orders")
    assert "rebalance" not in builder.build("scores").explain()


def test_one_component_is_not_several() -> None:
    builder = TopologyBuilder()
    builder.set_spout("orders", Source(["id"]))
    assert builder.build("words").explain().startswith("topology words: 1 component\n")


def test_options_that_fix_the_number_of_tasks_are_told_as_fixed() -> None:
    text = words().build("words", partitions=3, ackers=2).explain()
    assert "stage 1: 3 Spark tasks\n" in text
    assert "ackers: 2 Spark tasks;" in text


def test_without_ackers_no_acks_are_exchanged_and_it_says_what_that_means() -> None:
    text = words().build("words", ackers=0).explain()
    assert "2 stages, 1 exchange in" in text
    assert text.endswith("no ackers: a record is acked when its tuple is emitted (ackers=0)\n")


def test_without_an_exchange_each_task_decides_its_trees() -> None:
    builder = TopologyBuilder()
    builder.set_spout("orders", Source(["id"]))
    builder.set_bolt("store", Step()).shuffle_grouping("orders")
    text = builder.build("plain").explain()
    assert "1 stage, no exchange in" in text
    assert "no ackers: no tuple leaves its task" in text


def test_each_spout_is_explained_with_the_bolts_that_its_tuples_reach() -> None:
    clicks, orders = explained(ten_components().build("ten"))["spouts"]
    assert "by-customer-and-region-of-delivery" not in {
        each["name"] for stage in clicks["stages"] for each in stage["components"]
    }
    spout, alerts = orders["stages"][0]["components"]
    assert [spout["name"], alerts["name"]] == ["orders", "alerts"]
    assert [(each["component"], each["fused"]) for each in alerts["inputs"]] == [("orders", True)]


def test_programs_get_the_same_with_names_that_stay() -> None:
    (flow,) = explained(words().build("words"))["spouts"]
    assert (flow["spout"], flow["exchanges"], flow["ackers"]) == ("sentences", 1, 0)
    assert [(stage["stage"], stage["sparkTasks"]) for stage in flow["stages"]] == [(0, None), (1, 4)]
    (count,) = flow["stages"][1]["components"]
    assert count == {
        "name": "count",
        "kind": "bolt",
        "class": "Keeps",
        "parallelism": 4,
        "tasks": [4, 5, 6, 7],
        "stateful": True,
        "streams": {"default": {"fields": ["word", "count"], "direct": False}},
        "inputs": [
            {
                "component": "split",
                "stream": "default",
                "grouping": "fields",
                "fields": ["word"],
                "fused": False,
            }
        ],
    }


def test_what_is_told_of_tasks_is_what_runs_where_spark_has_room_for_them() -> None:
    topology = ten_components().build("ten")
    for flow in explained(topology)["spouts"]:
        program = topology._programs(100)[flow["spout"]]
        (tasks,) = {stage["sparkTasks"] for stage in flow["stages"][1:]}
        assert (tasks, flow["ackers"]) == (program.partitions, program.ackers)
