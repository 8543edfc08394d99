"""What failed beside other tests runs once more, alone, and is named."""

import json
from pathlib import Path

import pytest

from tests.once_more import AT_MOST, main

A_TEST = "from pathlib import Path\n\ndef test_it():\n    assert Path('quiet').exists()\n"


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("test_it.py").write_text(A_TEST)
    return tmp_path / "lastfailed"


@pytest.mark.parametrize(("quiet", "ends_with"), [(True, 0), (False, 1)])
def test_what_passes_alone_is_listed_and_what_fails_again_fails(
    found: Path, capfd: pytest.CaptureFixture[str], *, quiet: bool, ends_with: int
) -> None:
    found.write_text(json.dumps({"test_it.py::test_it": True}))
    if quiet:
        Path("quiet").touch()

    assert main(found) == ends_with
    assert ("please mend:\n  test_it.py::test_it" in capfd.readouterr().out) is quiet


@pytest.mark.parametrize(
    "failed",
    [
        ["tests/model/test_round_robin.py::test_it"],
        ["test_it.py::test_it", "tests/fault/test_short_run.py::test_it"],
        [f"test_it.py::test_it[{number}]" for number in range(AT_MOST + 1)],
    ],
    ids=["in a history", "in a fault", "too many"],
)
def test_a_loss_and_many_failures_get_no_second_run(
    found: Path, capfd: pytest.CaptureFixture[str], failed: list[str]
) -> None:
    Path("quiet").touch()
    found.write_text(json.dumps(dict.fromkeys(failed, True)))

    assert main(found) == 1
    assert not capfd.readouterr().out
