"""A few kills of a process with a spool; ``python -m tests.fault.spool_kills`` does as many as you like."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.no_second_run


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tests.fault.spool_kills", "--seed", "3", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_no_record_that_the_spool_took_over_is_lost_when_its_process_is_killed() -> None:
    done = run("--kills", "5")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 lost; " in done.stdout
