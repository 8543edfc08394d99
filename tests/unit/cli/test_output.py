"""Tables fit a terminal, and are whole in a pipe."""

import io
import sys

import pytest

from kinesis_spout.cli.output import duration, note, print_json, print_plain, print_table, printable

NUMBER = "49590338271490256608559692538361571095921575989136588898"
ROWS = [["shardId-000000000001", "-", f"after {NUMBER}", "a " * 40], ["shardId-000000000002", "-", "x", "b"]]
HEADINGS = ("shard", "parents", "goes on", "owner")


def test_a_pipe_gets_everything(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(HEADINGS, ROWS, "title", folding={"owner"})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "title"
    assert lines[1].split() == ["shard", "parents", "goes", "on", "owner"]
    assert NUMBER in lines[2]
    assert len(lines) == 4


def test_a_terminal_gets_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stdout", terminal)
    print_table(HEADINGS, ROWS, folding={"owner"})
    shown = terminal.getvalue()
    assert "shardId-000000000001  after …989136588898" in " ".join(shown.split("\n")).replace("   ", "  ")
    assert "parents" not in shown, "it says nothing"
    assert max(map(len, shown.splitlines())) <= 80


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
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "stdout", terminal)
    print_table(("h",), [(HOSTILE,)], HOSTILE)
    for line in terminal.getvalue().split("\n"):
        assert printable(line) == line


@pytest.mark.parametrize(
    ("millis", "text"), [(0, "0 ms"), (999, "999 ms"), (61_500, "0:01:01"), (90_000_000, "1 day, 1:00:00")]
)
def test_durations_are_written_as_people_say_them(millis: int, text: str) -> None:
    assert duration(millis) == text
