"""What a picture shows: who is in which stage, which arrows pass an exchange."""

from kinesis_spout.storm.picture.wiring import wiring_of
from tests.unit.storm.picture.sample_graphs import diamond, ten_components


def test_a_bolt_stands_behind_all_that_it_subscribes_to() -> None:
    wiring = wiring_of(diamond().graph())
    assert wiring.stage_of == {"orders": 0, "price": 0, "enrich": 1, "join": 2}
    assert {(arrow.source, arrow.target): arrow.fused for arrow in wiring.arrows} == {
        ("orders", "enrich"): False,
        ("orders", "price"): True,
        ("enrich", "join"): False,
        ("price", "join"): False,
    }


def test_of_several_spouts_a_bolt_is_shown_once_in_its_latest_stage() -> None:
    wiring = wiring_of(ten_components().graph())
    assert sorted(wiring.stage_of) == sorted(ten_components().graph().order)
    assert wiring.stage_of["alerts"] == 2, "of the clicks; of the orders it is 0"
    assert all(wiring.stage_of[arrow.source] <= wiring.stage_of[arrow.target] for arrow in wiring.arrows)
    of_stores = {arrow.source: arrow.fused for arrow in wiring.arrows if arrow.target == "store"}
    assert of_stores == {"score": True, "alerts": False}, (
        "what is exchanged for one spout is shown as exchanged"
    )


def test_a_label_names_the_grouping_and_the_stream_unless_that_is_the_default() -> None:
    labels = {
        (arrow.source, arrow.target): arrow.label for arrow in wiring_of(ten_components().graph()).arrows
    }
    assert labels["match", "audit"] == "late: global"
    assert labels["sessions", "match"] == "fields by word"
