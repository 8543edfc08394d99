"""An active and a passive process: killed, stopped and woken up."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kinesis_spout.zookeeper import EmbeddedZooKeeper
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.no_second_run, pytest.mark.zookeeper]

Start = Callable[[str], "Candidate"]


class Candidate:
    """A process that stands for election."""

    def __init__(self, arguments: list[str], output: Path) -> None:
        self._output = output
        with output.open("wb") as to:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.zookeeper.leader_process", *arguments],
                stdout=to,
                stderr=subprocess.STDOUT,
            )

    def said(self) -> list[str]:
        return [
            line
            for line in self._output.read_text().splitlines()
            if line in {"inaugurated", "stopped", "lost", "failed"}
        ]

    def log(self) -> str:
        return self._output.read_text()


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book"
    path.touch()
    return path


@pytest.fixture
def start(
    zookeeper_server: EmbeddedZooKeeper, fresh_root: str, tmp_path: Path, book: Path
) -> Iterator[Start]:
    candidates: list[Candidate] = []

    def started(name: str) -> Candidate:
        arguments = [zookeeper_server.connect_string, fresh_root, name, str(book)]
        candidates.append(Candidate(arguments, tmp_path / f"{name}.log"))
        return candidates[-1]

    yield started
    for candidate in candidates:
        candidate.process.kill()
        candidate.process.wait()


def lines(book: Path) -> list[tuple[int, str]]:
    return [(int(token), name) for token, name in (line.split() for line in book.read_text().splitlines())]


def names(book: Path) -> set[str]:
    return {name for _, name in lines(book)}


def test_when_the_leader_is_killed_the_other_one_takes_over(start: Start, book: Path) -> None:
    one = start("one")
    wait_until(lambda: len(lines(book)) >= 3, "one works")
    two = start("two")
    one.process.send_signal(signal.SIGKILL)
    assert one.process.wait(60) == -signal.SIGKILL
    wait_until(lambda: "two" in names(book), "two works")
    assert two.said() == ["inaugurated"]
    assert lines(book) == sorted(lines(book), key=lambda line: line[0])


def test_a_leader_that_was_stopped_for_longer_than_its_session_finds_its_term_lost(
    start: Start, book: Path
) -> None:
    one = start("one")
    wait_until(lambda: len(lines(book)) >= 3, "one works")
    start("two")
    one.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: "two" in names(book), "two works while one sleeps")
    one.process.send_signal(signal.SIGCONT)
    wait_until(lambda: "lost" in one.said(), one.log())
    before = len(lines(book))
    wait_until(lambda: len(lines(book)) > before + 3, "two works on")
    assert lines(book) == sorted(lines(book), key=lambda line: line[0])
    assert one.said() == ["inaugurated", "lost"]
