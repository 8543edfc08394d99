"""``topology explain`` and ``topology show``: find what the user wired, say and draw how it runs."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.fake_world import FakeWorld

WIRED = """
from kinesis_spout.storm import TopologyBuilder
from tests.support.storm.components import Sentences, Split

builder = TopologyBuilder()
builder.set_spout("sentences", Sentences())
builder.set_bolt("split", Split(), 2).fields_grouping("sentences", ["sentence"])
topology = builder.build("words")
number = 5

def as_builder(): return builder
def as_topology(): return topology
def as_number(): return 5
def as_nothing(): builder
def raises(): raise ZeroDivisionError("division by zero")
def with_argument(stream): return builder

def without_address():
    from tests.support.storm.components import CountWords
    keeping = TopologyBuilder()
    keeping.set_spout("sentences", Sentences())
    keeping.set_bolt("split", Split()).shuffle_grouping("sentences")
    keeping.set_bolt("count", CountWords(log=None)).fields_grouping("split", ["word"])
    return keeping

def on_nothing():
    broken = TopologyBuilder()
    broken.set_spout("sentences", Sentences())
    broken.set_bolt("split", Split()).shuffle_grouping("sentence")
    return broken

def without_settings():
    from kinesis_spout import KinesisSpout
    KinesisSpout()

def exits(): raise SystemExit(0)

class Undeclared(Split):
    def declare_output_fields(self): return FIELDS

undeclared = TopologyBuilder()
undeclared.set_spout("sentences", Sentences())
undeclared.set_bolt("words", Undeclared()).shuffle_grouping("sentences")
"""


@pytest.fixture(autouse=True)
def in_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "wired.py").write_text(WIRED)
    (tmp_path / "exits.py").write_text("raise SystemExit(0)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("wired", None)


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("builder", "wired"),
        ("as_builder", "wired"),
        ("topology", "words"),
        ("as_topology", "words"),
    ],
)
def test_a_builder_a_topology_or_a_function_that_gives_one_is_explained(name: str, title: str) -> None:
    out, _ = FakeWorld().call("topology", "explain", f"wired:{name}")
    assert out.startswith(f"topology {title}: 2 components\n")
    assert "from sentences: fields by sentence, through the exchange" in out


def test_what_cannot_run_is_explained_with_the_reason_why_it_would_be_refused() -> None:
    out, err = FakeWorld().call("topology", "explain", "wired:without_address")
    assert out.startswith("topology wired: 3 components\n")
    said = " ".join(err.split())
    assert "`topology run` would refuse it: topology 'wired': expected the option state, an address" in said


def test_programs_get_the_explanation_as_json() -> None:
    document = json.loads(FakeWorld().call("topology", "explain", "wired:builder", "--json")[0])
    assert [stage["stage"] for stage in document["spouts"][0]["stages"]] == [0, 1]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wired", "expected MODULE:BUILDER, as in my_module:builder, got 'wired'"),
        ("no_such_module:x", "expected an importable module 'no_such_module' (looked in {here} first)"),
        (
            "wired.py:builder",
            "expected the name of a module, without .py, as in my_module:builder, got 'wired.py",
        ),
        ("wired:nothing", "expected 'nothing' in the module 'wired' ({here}/wired.py), found none"),
        ("wired:number", "expected wired:number to be a TopologyBuilder, a Topology, or a function"),
        (
            "wired:as_number",
            "expected the function wired:as_number to return a TopologyBuilder or a Topology",
        ),
        ("wired:as_nothing", "to return a TopologyBuilder or a Topology, got None: it returns nothing"),
        (
            "wired:with_argument",
            "expected a function that is called without arguments, got wired:with_argument",
        ),
        ("wired:raises", "wired:raises: expected a topology, got ZeroDivisionError: division by zero"),
        ("wired:exits", "wired:exits: expected a topology, got SystemExit: 0"),
        (
            "wired:undeclared",
            "expected a topology, got NameError: name 'FIELDS' is not defined, raised by declare_output_fields",
        ),
        (
            "exits:builder",
            "expected an importable module 'exits' (looked in {here} first), got SystemExit: 0",
        ),
        (
            "wired:on_nothing",
            "bolt 'split': expected a grouping on a component of the topology (sentences, split)",
        ),
        ("wired:without_settings", "wired:without_settings: stream is required"),
    ],
)
def test_what_is_no_topology_is_refused_in_one_line(in_directory: Path, name: str, message: str) -> None:
    for command in ("explain", "show", "run"):
        out, err = FakeWorld().call("topology", command, name, exit_code=2)
        assert out == ""
        assert err.startswith("error: ")
        assert message.format(here=in_directory) in err
        assert "next: " in err


def test_a_topology_is_drawn() -> None:
    drawn, _ = FakeWorld().call("topology", "show", "wired:builder")
    assert drawn.startswith("flowchart LR\n")
