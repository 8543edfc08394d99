"""The live view has what an operator looks for, at any width."""

import sys

import pytest

from kinesis_spout.cli.runs.goal import Goal
from kinesis_spout.cli.runs.progress_views import LiveView
from kinesis_spout.cli.runs.snapshot import Snapshot, TopologySnapshot
from kinesis_spout.cli.runs.terminal_bottom import TerminalBottom
from kinesis_spout.consumer.counters import Counters
from kinesis_spout.storm.running.counts import ComponentCounts
from shard_state import SequenceNumber, ShardPhase, ShardStatus
from tests.support.terminals import a_screen, resize

SNAPSHOT = Snapshot(
    state="running",
    counters=Counters(delivered=12_345_678, acked=12_300_000, retried=45_678, dead_lettered=12),
    records_per_second=98_765.4,
    lag_millis=90_061_000,
    shards=tuple(
        ShardStatus(
            shard_id=f"shardId-00000000000{number}",
            phase=ShardPhase.READING,
            epoch=number % 2,
            checkpoint=SequenceNumber(49590338271490256608559692538361571095921575989136588898 + number),
            in_flight=1_000,
            waiting=number,
        )
        for number in range(4)
    ),
    assigned={"this-host-4711-ab12cd": 2, "another-host-4712-ef34ab": 2, "stand-by-1-000000": 0},
)


def shown(
    monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot, *, columns: int = 80, detailed: bool = False
) -> list[str]:
    screen = a_screen(monkeypatch, columns=columns)
    bottom = TerminalBottom(sys.stderr)
    view = LiveView(bottom, "billing on orders", Goal("latest", None), detailed=detailed)
    view.show(snapshot)
    return screen.lines


def test_at_80_columns_it_has_nine_figures_a_bar_and_the_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    title, bar, *figures, owners, named = shown(monkeypatch, SNAPSHOT)
    assert title.split() == ["billing", "on", "orders", "running", "0:00:01"]
    assert bar.split()[-4:] == ["0", "%", "until", "latest"]
    text = " ".join(" ".join(figures).split())
    assert text == (
        "records/s 98,765 lag 1 day, 1:01:01 in flight 4,000 delivered 12,345,678 acked 12,300,000 "
        "waiting retries 6 retried 45,678 dead letters 12 shards owned 2 of 4"
    )
    assert len(figures) == 3
    assert f"{owners} {named}".split(maxsplit=1) == [
        "owners",
        "another-host-4712-ef34ab 2, this-host-4711-ab12cd 2, stand-by-1-000000 0",
    ]


@pytest.mark.parametrize("columns", [200, 80, 60, 40, 26])
@pytest.mark.parametrize("detailed", [False, True])
def test_it_fits_every_width_and_loses_no_figure(
    monkeypatch: pytest.MonkeyPatch, columns: int, *, detailed: bool
) -> None:
    lines = shown(monkeypatch, SNAPSHOT, columns=columns, detailed=detailed)
    assert max(map(len, lines)) < columns
    text = " ".join(lines)
    for figure in ("98,765", "1 day, 1:01:01", "12,345,678", "dead letters", "2 of 4"):
        assert figure in text


def test_it_fits_the_window_again_when_that_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = a_screen(monkeypatch)
    bottom = TerminalBottom(sys.stderr)
    view = LiveView(bottom, "billing on orders", None, detailed=False)
    view.look()
    assert screen.lines == [""], "nothing is shown before the first snapshot"
    view.show(SNAPSHOT)
    resize(screen, bottom.console, 40)
    view.look()
    assert len([line for line in screen.lines if line.startswith("billing on orders")]) == 1
    assert max(map(len, screen.lines)) < 40


def test_it_says_what_is_wrong_and_no_control_characters_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = Snapshot(
        state="paused",
        counters=Counters(),
        records_per_second=0,
        paused="97 of the last 100 failed",
        last_error="a\x1b[2Jb",
    )
    *_, paused, error = shown(monkeypatch, snapshot)
    assert paused == "97 of the last 100 failed"
    assert error == r"retrying after: a\x1b[2Jb"


def test_of_a_topology_it_shows_the_components(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = TopologySnapshot(
        state="running",
        counters=Counters(),
        records_per_second=0,
        spouts={},
        components={"split": ComponentCounts(executed=1_200, acked=1_199, failed=1)},
    )
    lines = shown(monkeypatch, snapshot, detailed=True)
    assert lines[-2].split()[:3] == ["component", "executed", "emitted"]
    assert lines[-1].split()[:5] == ["split", "1,200", "0", "1,199", "1"]
