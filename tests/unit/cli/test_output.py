"""Tables fit a terminal, and are whole in a pipe."""

import sys

import pytest

from kinesis_spout.cli.output import (
    duration,
    note,
    print_json,
    print_plain,
    print_table,
    printable,
)
from tests.support.terminals import FakeTerminal, a_terminal

NUMBER = "49590338271490256608559692538361571095921575989136588898"
ROWS = [["shardId-000000000001", "-", f"after {NUMBER}", "a " * 40], ["shardId-000000000002", "-", "x", "b"]]
HEADINGS = ("shard", "parents", "goes on", "owner")


def test_a_pipe_gets_everything(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(HEADINGS, ROWS, "title", cutting={"owner"})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "title"
    assert lines[1].split() == ["shard", "parents", "goes", "on", "owner"]
    assert NUMBER in lines[2]
    assert len(lines) == 4


def test_a_terminal_gets_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch, "stdout")
    print_table(HEADINGS, [["shardId-000000000001", "-", f"after {NUMBER}", "a"]], cutting={"owner"})
    shown = terminal.getvalue()
    assert "shardId-000000000001  after …989136588898  a" in shown
    assert "parents" not in shown, "it says nothing"


def test_on_a_terminal_with_colours_an_alarming_cell_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = a_terminal(monkeypatch, "stdout", kind="xterm-256color")
    rows = [["one", "stalled"], ["two", "reading"]]
    print_table(("shard", "state"), rows, alarming={"stalled"})
    _, first, second = terminal.getvalue().splitlines()
    assert "\x1b[1;31mstalled" in first
    assert "\x1b[" not in second


def test_what_is_too_wide_is_cut_in_front_and_stays_distinguishable(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch, "stdout")
    host = "ip-10-0-12-34.eu-central-1.compute.internal"
    rows = [
        [f"shardId-00000000000{number}", "-", f"after {NUMBER}", f"{host}-4711-ab12cd3{number}"]
        for number in (1, 2)
    ]
    print_table(HEADINGS, rows, cutting={"owner"})
    heading, *lines = terminal.getvalue().splitlines()
    assert heading.split() == ["shard", "goes", "on", "owner"]
    assert [line.split()[0] for line in lines] == ["…0001", "…0002"], "a line for each shard"
    assert [line.split()[-1][-13:] for line in lines] == ["4711-ab12cd31", "4711-ab12cd32"]
    assert max(map(len, lines)) <= 80


def test_a_shard_number_of_more_than_four_digits_is_shown_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch, "stdout")
    print_table(("shard", "says"), [["shardId-000000123456", "x" * 70]])
    assert terminal.getvalue().splitlines()[1].startswith("…123456  x")


def test_a_row_that_cannot_be_cut_to_fit_gets_lines_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch, "stdout")
    headings = ("message id", "died", "reason", "error")
    message_id = f"shardId-000000000000:{NUMBER}"
    print_table(
        headings, [[message_id, "2026-01-31", "exhausted", "ValueError: no " * 5]], whole={"message id"}
    )
    lines = terminal.getvalue().splitlines()
    assert lines[0] == message_id, "to be copied"
    assert lines[1].strip() == "died 2026-01-31   reason exhausted"
    assert max(map(len, lines)) <= 80


def test_sentences_get_lines_of_their_own_where_a_column_would_be_narrow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [["retry_limit", "int >= 0, or none", "3", "How often to retry a failed record. " * 3]]
    headings = ("setting", "allowed", "default", "meaning")
    terminal = a_terminal(monkeypatch, "stdout")
    print_table(headings, rows, folding=headings[1:])
    lines = terminal.getvalue().splitlines()
    assert lines[:2] == ["retry_limit", "  allowed int >= 0, or none   default 3"]
    assert lines[2].startswith("  meaning How often to retry a failed record. How often")
    wide = a_terminal(monkeypatch, "stdout", columns=140, kind="xterm")
    print_table(headings, rows, folding=headings[1:])
    assert all(heading in wide.getvalue().splitlines()[0] for heading in headings)


HOSTILE = "a\x1b]0;title\x07\x1b[2Jb\x9b31mc\r\x08d\u202egnp.exe\u2066\x7f\u2028e\ud800"


def test_control_characters_are_shown_and_not_sent() -> None:
    assert printable(HOSTILE) == (
        r"a\x1b]0;title\x07\x1b[2Jb\x9b31mc\r\x08d\u202egnp.exe\u2066\x7f\u2028e\ud800"
    )
    assert printable("Grüße, 注文, emoji 👩\u200d💻") == "Grüße, 注文, emoji 👩\u200d💻"


def test_nothing_that_is_printed_holds_a_control_character(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("h",), [(HOSTILE,)], HOSTILE)
    print_plain(("h",), [(HOSTILE,)], HOSTILE)
    print_json({"error": HOSTILE, HOSTILE: 1})
    note(f"{HOSTILE}\nsecond line")
    captured = capsys.readouterr()
    for line in (captured.out + captured.err).split("\n"):
        assert printable(line) == line


def test_a_terminal_gets_no_control_character_in_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch, "stdout")
    print_table(("h",), [(HOSTILE,)], HOSTILE)
    for line in terminal.getvalue().split("\n"):
        assert printable(line) == line


@pytest.mark.parametrize(
    ("millis", "text"), [(0, "0 ms"), (999, "999 ms"), (61_500, "0:01:01"), (90_000_000, "1 day, 1:00:00")]
)
def test_durations_are_written_as_people_say_them(millis: int, text: str) -> None:
    assert duration(millis) == text


def test_what_is_said_on_a_terminal_breaks_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    screen = FakeTerminal()
    monkeypatch.setattr(sys, "stderr", screen)
    path = "/a/very/long/path/that/somebody/will/want-to-copy/whole"
    note(f"error: expected a readable TOML file at {path}, got nothing: correct it\n\nend")

    assert screen.getvalue().splitlines() == [
        "error: expected a readable TOML file at",
        f"{path},",
        "got nothing: correct it",
        "",
        "end",
    ]


def test_what_is_said_elsewhere_stays_on_its_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    note("a line " * 20)
    assert capsys.readouterr().err == "a line " * 20 + "\n"
