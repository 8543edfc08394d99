"""What failed beside other tests runs once more, alone, and is named."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.once_more import AT_MOST, NEVER_AGAIN, main

A_TEST = """
import pytest
from pathlib import Path

def test_it():
    assert Path('quiet').exists()

@pytest.mark.no_second_run
def test_that_nothing_is_lost():
    assert Path('quiet').exists()
"""
IT = "test_it.py::test_it"
ABOUT_TIMES = {"test_alerts.py", "test_topology_rates.py"}

Again = Callable[..., int]


@pytest.fixture
def again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Again:
    """Gives how it ends after some tests have failed, in a folder of tests that pass where it is quiet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    Path("pytest.ini").write_text(f"[pytest]\nmarkers = {NEVER_AGAIN}\n")
    Path("test_it.py").write_text(A_TEST)
    Path("needed_twice.txt").write_text("# Those to be mended.\n")

    def ends(*failed: str) -> int:
        Path("lastfailed").write_text(json.dumps(dict.fromkeys(failed, True)))
        return main(Path("lastfailed"), Path("needed_twice.txt"))

    return ends


def test_what_fails_again_fails(again: Again, capfd: pytest.CaptureFixture[str]) -> None:
    assert again(IT) == 1
    assert "please mend" not in capfd.readouterr().out
    assert Path("needed_twice.txt").read_text() == "# Those to be mended.\n"


def test_what_passes_alone_is_listed_and_fails_the_build_when_it_needs_that_again(
    again: Again, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("quiet").touch()

    assert again(IT) == 0
    assert f"please mend:\n  {IT}\n" in capfd.readouterr().out
    known = Path("needed_twice.txt").read_text()
    assert known == f"# Those to be mended.\n{IT}\n"

    assert again(IT) == 1
    assert f"Not for the first time, says needed_twice.txt:\n  {IT}\n" in capfd.readouterr().out
    assert Path("needed_twice.txt").read_text() == known


@pytest.mark.parametrize(
    "failed",
    [
        [IT, "test_it.py::test_that_nothing_is_lost"],
        [IT, "test_gone.py::test_it"],
        [f"test_it.py::test_it[{number}]" for number in range(AT_MOST + 1)],
    ],
    ids=["a loss", "one that is not there", "too many"],
)
def test_a_loss_and_many_failures_get_no_second_run(
    again: Again, capfd: pytest.CaptureFixture[str], failed: list[str]
) -> None:
    Path("quiet").touch()

    assert again(*failed) == 1
    assert "once more" not in capfd.readouterr().out


def test_histories_and_faults_are_marked_but_for_those_about_durations() -> None:
    rings = Path(__file__).parents[1]

    unmarked = {
        file.name
        for ring in ("model", "fault")
        for file in (rings / ring).rglob("test_*.py")
        if f"pytest.mark.{NEVER_AGAIN}" not in file.read_text()
    }

    assert unmarked == ABOUT_TIMES
