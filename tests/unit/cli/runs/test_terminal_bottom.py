"""One picture stays at the bottom of a terminal, whatever is printed and however wide the window is."""

import errno
import logging
import sys
import threading

import pytest
from rich.text import Text

from kinesis_spout.cli.runs.terminal_bottom import TerminalBottom
from tests.support.terminals import Screen, a_screen, resize


def test_a_picture_is_drawn_in_place_and_stays_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = a_screen(monkeypatch)
    bottom = TerminalBottom(sys.stderr)
    with bottom.taking_all():
        for number in range(3):
            bottom.draw(Text(f"picture {number}\nof two lines"))
            assert screen.lines == [f"picture {number}", "of two lines"]
    print("after it")  # noqa: T201
    assert screen.lines == ["picture 2", "of two lines", "after it"]


def test_what_is_printed_meanwhile_stands_above_it_in_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = a_screen(monkeypatch)
    bottom = TerminalBottom(sys.stderr)
    with bottom.taking_all():
        bottom.draw(Text("picture"))
        print("charging", 1)  # noqa: T201
        sys.stderr.write("\x1b[31mhalf a ")
        assert screen.lines == ["charging 1", "picture"]
        sys.stderr.write("line\x1b[0m\n" + "x" * 100 + "\n")
        bottom.draw(Text("picture"))
        assert screen.lines == ["charging 1", "half a line", "x" * 80, "x" * 20, "picture"]
        print("the end of the last line is missing", end="")  # noqa: T201
    assert screen.lines[-2:] == ["the end of the last line is missing", "picture"]


def test_a_handler_of_the_log_that_was_there_before_writes_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = a_screen(monkeypatch)
    handler = logging.StreamHandler()
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    bottom = TerminalBottom(sys.stderr)
    with bottom.taking_all():
        bottom.draw(Text("picture"))
        logging.getLogger("theirs").warning("said by the user's module")
        assert screen.lines == ["said by the user's module", "picture"]
    assert handler.stream is screen


def test_standard_output_that_is_no_terminal_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    piped = sys.stdout
    screen = a_screen(monkeypatch)
    monkeypatch.setattr(sys, "stdout", piped)
    bottom = TerminalBottom(sys.stderr)
    with bottom.taking_all():
        bottom.draw(Text("picture"))
        print("for the pipe")  # noqa: T201
    assert screen.lines == ["picture"]
    assert capsys.readouterr().out == "for the pipe\n"


@pytest.mark.parametrize("widths", [(60, 30, 100), (31, 200, 25)])
def test_a_window_that_changes_its_size_keeps_one_picture(
    monkeypatch: pytest.MonkeyPatch, widths: tuple[int, ...]
) -> None:
    screen = a_screen(monkeypatch)
    bottom = TerminalBottom(sys.stderr)
    with bottom.taking_all():
        print("before")  # noqa: T201
        bottom.draw(Text("x" * 79 + "\n" + "y" * 50 + "\n\nend"))
        for width in widths:
            resize(screen, bottom.console, width)
            bottom.draw(Text("again\nend"))
            assert screen.lines == ["before", "again", "end"]
            bottom.draw(Text("z" * min(79, width - 1)))
        print("after it")  # noqa: T201
        assert screen.lines[:2] == ["before", "after it"]


def test_a_picture_that_is_higher_than_the_window_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = a_screen(monkeypatch, rows=6)
    bottom = TerminalBottom(sys.stderr)
    with bottom.taking_all():
        for _ in range(2):
            bottom.draw(Text("\n".join(map(str, range(10)))))
            assert screen.lines == ["0", "1", "2", "3", "… 6 more lines"]


def test_a_terminal_that_is_gone_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(Screen):
        def write(self, text: str) -> int:
            del text
            raise OSError(errno.EIO, "the terminal is gone")

    a_screen(monkeypatch)
    monkeypatch.setattr(sys, "stderr", Gone(80))
    bottom = TerminalBottom(sys.stderr)
    with bottom.taking_all():
        bottom.draw(Text("picture"))
        print("said", file=sys.stderr)  # noqa: T201


def test_threads_that_print_at_the_same_time_break_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = a_screen(monkeypatch)
    bottom = TerminalBottom(sys.stderr)

    def chat(name: str) -> None:
        for number in range(50):
            print(name, number)  # noqa: T201

    with bottom.taking_all():
        bottom.draw(Text("picture"))
        threads = [threading.Thread(target=chat, args=(name,)) for name in ("a", "b")]
        for thread in threads:
            thread.start()
        for number in range(50):
            bottom.draw(Text(f"picture {number}\n" * (1 + number % 3)))
        for thread in threads:
            thread.join()
        bottom.draw(Text("picture"))
    *printed, last = screen.lines
    assert last == "picture"
    assert sorted(printed) == sorted(f"{name} {number}" for name in ("a", "b") for number in range(50))
