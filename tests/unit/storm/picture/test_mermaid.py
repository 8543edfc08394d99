"""Topologies as Mermaid flowcharts."""

import re

from kinesis_spout.storm import TopologyBuilder
from kinesis_spout.storm.running.counts import ComponentCounts
from tests.unit.storm.picture.sample_graphs import Source, Step, diamond, ten_components, words

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
    drawn = words().build("words").mermaid({"sentences": counts})
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


def stages_and_arrows(drawn: str) -> tuple[dict[str, int], dict[tuple[str, str], tuple[str, str]]]:
    """Read a drawing: the stage of each component; of each arrow how it is drawn, and its label."""
    stages: dict[str, int] = {}
    ids: dict[str, str] = {}
    arrows: dict[tuple[str, str], tuple[str, str]] = {}
    stage = -1
    for line in drawn.splitlines():
        if found := re.fullmatch(r'  subgraph s(\d+)\["stage \1"\]', line):
            stage = int(found[1])
        elif found := re.fullmatch(r'    (c\d+)\W+"([^"<]+)<br/>.*', line):
            ids[found[1]], stages[found[2]] = found[2], stage
        elif found := re.fullmatch(r'  (c\d+) (-->|==>)\|"(.*)"\| (c\d+)', line):
            arrows[ids[found[1]], ids[found[4]]] = (found[2], found[3])
    return stages, arrows


def test_a_bolt_stands_behind_all_that_it_subscribes_to() -> None:
    stages, arrows = stages_and_arrows(diamond().build().mermaid())
    assert stages == {"orders": 0, "price": 0, "enrich": 1, "join": 2}
    assert {ends: line for ends, (line, _) in arrows.items()} == {
        ("orders", "enrich"): "==>",
        ("orders", "price"): "-->",
        ("enrich", "join"): "==>",
        ("price", "join"): "==>",
    }


def test_of_several_spouts_a_bolt_is_shown_once_in_its_latest_stage() -> None:
    topology = ten_components().build()
    drawn = topology.mermaid()
    stages, arrows = stages_and_arrows(drawn)
    assert sorted(stages) == sorted(topology.graph.order)
    assert drawn.count("<br/>") == len(stages)
    assert stages["alerts"] == 2, "of the clicks; of the orders it is 0"
    assert all(stages[source] <= stages[target] for source, target in arrows)
    of_stores = {source: line for (source, target), (line, _) in arrows.items() if target == "store"}
    assert of_stores == {"score": "-->", "alerts": "==>"}, "exchanged for one spout is shown as exchanged"


def test_a_label_names_the_grouping_and_the_stream_unless_that_is_the_default() -> None:
    _, arrows = stages_and_arrows(ten_components().build().mermaid())
    assert arrows["match", "audit"][1] == "late: global"
    assert arrows["sessions", "match"][1] == "fields by word"
