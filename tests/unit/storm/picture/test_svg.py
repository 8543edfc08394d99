"""Topologies as SVG pictures: well-formed, by themselves, and without anything over anything else."""

from dataclasses import dataclass
from itertools import combinations
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.storm import TopologyBuilder
from kinesis_spout.storm.running.counts import ComponentCounts
from tests.unit.storm.picture.sample_graphs import Source, Step, diamond, ten_components, words

SVG = "{http://www.w3.org/2000/svg}"
SIZES = {"title": 16, "name": 14}


@dataclass(frozen=True)
class Area:
    what: str
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: "Area") -> bool:
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom

    def contains(self, other: "Area") -> bool:
        return (
            self.left <= other.left
            and other.right <= self.right
            and self.top <= other.top
            and other.bottom <= self.bottom
        )


def text_areas(root: ET.Element) -> list[Area]:
    """Where texts are, in a font as wide as the usual ones (0.602 em)."""
    areas = []
    for text in root.iter(f"{SVG}text"):
        kind, shown = text.get("class", "").split(), (text.text or "").strip()
        size = SIZES.get(kind[0], 12)
        width = 0.602 * size * len(shown)
        left = float(text.get("x", 0)) - width * (0.5 if "middle" in kind else "end" in kind)
        line = float(text.get("y", 0))
        areas.append(Area(shown, left, line - 0.75 * size, left + width, line + 0.2 * size))
    return areas


def boxes(root: ET.Element, *kinds: str) -> list[Area]:
    found = []
    for rect in root.iter(f"{SVG}rect"):
        if rect.get("class") in kinds:
            x, y, width, height = (float(rect.get(name, 0)) for name in ("x", "y", "width", "height"))
            found.append(Area(rect.get("class", ""), x, y, x + width, y + height))
    return found


def check(drawn: str) -> ET.Element:
    """Find texts over each other, boxes over each other, texts half in a box, and what is outside."""
    root = ET.fromstring(drawn)
    texts, components = text_areas(root), boxes(root, "spout", "bolt")
    for one, other in combinations(texts, 2):
        assert not one.overlaps(other), (one, other)
    for one, other in combinations(components, 2):
        assert not one.overlaps(other), (one, other)
    for text in texts:
        for box in components:
            assert box.contains(text) or not box.overlaps(text), (text, box)
    whole = Area("picture", 0, 0, float(root.get("width", 0)), float(root.get("height", 0)))
    assert all(whole.contains(area) for area in [*texts, *components])
    return root


def counts_of(builder: TopologyBuilder) -> dict[str, ComponentCounts]:
    return {
        name: ComponentCounts(
            executed=123_456_789,
            emitted=987_654_321,
            acked=123_456_000,
            failed=700,
            timed_out=89,
            sampled=10,
            sampled_seconds=0.000123,
            completed=1,
            completing_seconds=1_234.5,
        )
        for name in builder.graph().order
    }


@pytest.mark.parametrize("make", [words, diamond, ten_components])
def test_nothing_is_drawn_over_anything_else(make: type[TopologyBuilder]) -> None:
    builder = make()
    for counts in (None, {}, counts_of(builder)):
        check(builder.build("words").svg(counts))


@st.composite
def topologies(draw: st.DrawFn) -> TopologyBuilder:
    builder, names = TopologyBuilder(), []
    for number in range(draw(st.integers(1, 3))):
        names.append(f"spout-{number}")
        builder.set_spout(names[-1], Source({"default": ["key"], "other": ["key"]}))
    for number in range(draw(st.integers(1, 9))):
        name = f"bolt-{number}" + "-of-a-long-name" * draw(st.integers(0, 2))
        declarer = builder.set_bolt(name, Step({"default": ["key"], "other": ["key"]}))
        sources = st.tuples(st.sampled_from(names), st.sampled_from(["default", "other"]))
        for source, stream in draw(st.lists(sources, min_size=1, max_size=4, unique=True)):
            if draw(st.booleans()):
                declarer.shuffle_grouping(source, stream)
            else:
                declarer.fields_grouping(source, ["key"], stream)
        names.append(name)
    return builder


@given(topologies())
def test_nothing_is_drawn_over_anything_else_whatever_is_wired(builder: TopologyBuilder) -> None:
    root = check(builder.build("any").svg(counts_of(builder)))
    exchanged = [path for path in root.iter(f"{SVG}path") if path.get("class") == "exchanged"]
    assert bool(exchanged) <= bool(list(root.iter(f"{SVG}line"))), "what is exchanged passes a line"


def test_counts_stand_in_the_box_and_failures_are_marked() -> None:
    counts = {"count": ComponentCounts(executed=12_000, failed=3, sampled=1, sampled_seconds=0.0021)}
    root = check(words().build("words").svg(counts))
    shown = {text.text: text.get("class") for text in root.iter(f"{SVG}text")}
    assert shown["12,000"] == "number end"
    assert shown["3"] == "number end bad"
    assert "2.1 ms" in shown


def test_a_name_that_is_too_long_is_cut_and_shown_whole_under_the_pointer() -> None:
    name = "a-very-long-name-" * 5 + "of-mine"
    builder = TopologyBuilder()
    builder.set_spout(name, Source(["id"]))
    root = check(builder.build("x").svg())
    (text,) = (text for text in root.iter(f"{SVG}text") if text.get("class") == "name")
    assert (text.text or "").strip() == "a-very-long-nam…g-name-of-mine"
    assert text.findtext(f"{SVG}title") == name


@pytest.mark.parametrize("name", ["<script>&\"'", "line\nbreak\x00\x1b[2J", "\u202egnirts", "\ud800"])
def test_an_id_of_any_characters_is_drawn_as_text(name: str) -> None:
    builder = TopologyBuilder()
    builder.set_spout(name, Source(["id"]))
    drawn = builder.build(name).svg()
    assert drawn.encode()
    root = check(drawn)
    assert not list(root.iter(f"{SVG}script"))
    assert not any("\u202e" in (text.text or "") for text in root.iter(f"{SVG}text"))


def test_the_picture_stands_for_itself_in_light_and_in_dark() -> None:
    drawn = words().build("words").svg()
    assert "prefers-color-scheme: dark" in drawn
    assert drawn.count("http") == 1, "the name of the namespace; nothing is fetched"
