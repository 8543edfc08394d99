"""Topologies as Mermaid flowcharts."""

import re

from kinesis_spout.storm import TopologyBuilder
from kinesis_spout.storm.running.counts import ComponentCounts
from tests.unit.storm.picture.sample_graphs import Source, Step, words

WORDS = """\
flowchart LR
  subgraph s0["stage 0"]
    c0(["sentences<br/>Source"])
    c1["split<br/>Step, 2 tasks"]
  end
  subgraph s1["stage 1"]
    c2[("count<br/>Keeps, 4 tasks, state")]
  end
  c0 -->|"shuffle"| c1
  c1 ==>|"fields by word"| c2
"""


def test_what_passes_an_exchange_has_a_thick_arrow() -> None:
    assert words().build("words").mermaid() == WORDS


def test_counts_are_written_into_the_boxes() -> None:
    counts = {"split": ComponentCounts(executed=1200, emitted=3000, acked=1199, failed=1)}
    drawn = words().build("words").mermaid(counts)
    assert (
        "split<br/>Step, 2 tasks<br/>executed 1,200<br/>emitted 3,000<br/>acked 1,199<br/>failed 1" in drawn
    )
    assert "sentences<br/>Source<br/>emitted 0<br/>acked 0<br/>failed 0" in drawn


def test_a_spout_is_drawn_with_what_became_of_its_tuples_and_how_long_it_took() -> None:
    counts = ComponentCounts(emitted=9, acked=6, failed=2, timed_out=1, completed=6, completing_seconds=9.0)
    drawn = words().build("words").mermaid({"sentences": ComponentCounts.from_told(counts.told())})
    shown = "emitted 9<br/>acked 6<br/>failed 2<br/>timed out 1<br/>complete latency 1,500 ms"
    assert f"sentences<br/>Source<br/>{shown}" in drawn


def test_a_local_run_can_be_drawn_with_its_counts() -> None:
    from tests.support.storm.components import Sentences, Split  # noqa: PLC0415

    builder = TopologyBuilder()
    builder.set_spout("sentences", Sentences())
    builder.set_bolt("split", Split()).shuffle_grouping("sentences")
    topology = builder.build("words")
    result = topology.run_local([["to be"], ["or not"]])
    assert "executed 2<br/>emitted 4<br/>acked 2" in topology.mermaid(result.counts)


def test_an_id_with_characters_that_mean_something_cannot_break_out_of_its_box() -> None:
    nasty = 'a"] --> b; `x` <b>#&\n%% end'
    builder = TopologyBuilder()
    builder.set_spout(nasty, Source(["id"]))
    builder.set_bolt("end", Step()).shuffle_grouping(nasty)
    box = builder.build("x").mermaid().splitlines()[2]
    inside = re.fullmatch(r'    c0\(\["(.*)<br/>Source"\]\)', box)
    assert inside, box
    assert not set(inside[1]) & set('"[]<>`&%\n')
