"""``doctor`` prints one finding after the other, for people and for programs, and its exit code is for scripts."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kinesis_spout.operations.doctor import Condition, Finding
from kinesis_spout.operations.world import UNNAMED
from kinesis_spout.settings import SpoutConfig
from tests.support.terminals import a_terminal
from tests.unit.cli.fake_world import SETTINGS, FakeWorld

FINE = Finding(Condition.OK, "Java", "17.0.15")
STRANGE = Finding(Condition.WARNING, "python3 on PATH", "it lacks kinesis_spout\x1b[2J", "set PYSPARK_PYTHON")
UNASKED = Finding(Condition.UNKNOWN, "may put records", "this endpoint does not know DryRun")
MISSING = Finding(
    Condition.MISSING,
    "ZooKeeper",
    "nobody answers, `session_timeout_seconds` is over",
    "see that it runs. " * 5,
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What an examination was asked; its findings are under that name."""
    asked: dict[str, Any] = {"findings": [FINE, STRANGE, UNASKED]}

    def examine(_: FakeWorld, config: SpoutConfig, **given: Any) -> Iterator[Finding]:
        asked.update(given, config=config)
        yield from asked["findings"]

    monkeypatch.setattr("kinesis_spout.cli.commands.checks.examine", examine)
    return asked


def test_findings_are_lines_with_what_to_do_below(asked: dict[str, Any]) -> None:
    out, _ = FakeWorld().call("doctor", *SETTINGS)
    assert out.splitlines() == [
        "ok         Java                   17.0.15",
        r"warning    python3 on PATH        it lacks kinesis_spout\x1b[2J",
        "                                  next: set PYSPARK_PYTHON",
        "not known  may put records        this endpoint does not know DryRun",
    ]
    assert asked["stream"]


def test_something_that_is_missing_is_an_exit_code(asked: dict[str, Any]) -> None:
    asked["findings"] = [FINE, MISSING]
    out, _ = FakeWorld().call("doctor", *SETTINGS, exit_code=1)
    assert "missing    ZooKeeper" in out
    assert "`--set session_timeout_seconds=VALUE`" in out, "in the words of the command line"
    assert "next: see that it runs" in out


def test_programs_get_json(asked: dict[str, Any]) -> None:
    asked["findings"] = [FINE, MISSING]
    document = json.loads(FakeWorld().call("doctor", "--json", *SETTINGS, exit_code=1)[0])
    assert document["healthy"] is False
    assert document["findings"][0] == {"condition": "ok", "about": "Java", "text": "17.0.15", "next": None}
    asked["findings"] = [FINE, STRANGE]
    assert json.loads(FakeWorld().call("doctor", "--json", *SETTINGS)[0])["healthy"] is True


def test_neither_stream_nor_application_need_be_given(asked: dict[str, Any]) -> None:
    FakeWorld().call("doctor", "--zookeeper", "a:2181")
    assert not asked["stream"]
    assert asked["config"].stream == UNNAMED
    FakeWorld().call("doctor", "--stream", "orders")
    assert asked["stream"]


@pytest.mark.usefixtures("asked")
def test_a_wrong_setting_is_refused_as_everywhere() -> None:
    _, err = FakeWorld().call("doctor", "--set", "retry_limit=many", exit_code=2)
    assert err.startswith("error: ")


def test_on_a_terminal_long_lines_go_on_below_their_text(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from kinesis_spout.cli.commands.checks import print_finding  # noqa: PLC0415

    del asked
    terminal = a_terminal(monkeypatch, "stdout", columns=80)
    print_finding(MISSING)
    lines = terminal.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) >= 4
    assert all(line.startswith(" " * 34) for line in lines[1:])
