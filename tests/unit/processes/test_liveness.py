"""Whether a process is there."""

import os
import subprocess
import sys

from kinesis_spout.processes.liveness import has_ended


def test_one_that_runs_has_not_ended_whoever_owns_it() -> None:
    assert not has_ended(os.getpid())
    assert not has_ended(1)


def test_one_that_was_waited_for_has_ended() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert has_ended(process.pid)
