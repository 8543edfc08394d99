"""The small examples as a user runs them. Each checks its own result, and says so in its last line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = 120
COLUMNS = 80


def output(example: str, tmp_path: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", f"examples.{example}"],
        env={**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": str(COLUMNS)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= COLUMNS
    assert lines[-1].startswith("Checked: ")
    return done.stdout


def test_payments_are_booked_exactly_once_over_kills_in_both_honest_ways(tmp_path: Path) -> None:
    shown = output("effectively_once", tmp_path)
    assert shown.count("every account is exact") == 2
    assert shown.count("every account is NOT exact") == 1


@pytest.mark.endpoint
@pytest.mark.zookeeper
def test_the_bill_is_exact_although_the_biller_is_killed_on_the_way(tmp_path: Path) -> None:
    assert "its stand-by took over" in output("billing_collector", tmp_path)


def test_nothing_is_allocated_twice_over_changes_of_leader(tmp_path: Path) -> None:
    assert "5 of these writes were refused" in output("work_orders", tmp_path)
