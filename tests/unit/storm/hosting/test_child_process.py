"""The process of a component in another language ends with the process that started it, however that ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kinesis_spout.storm.hosting.processes.child_process import ChildProcess, ChildSettings
from tests.support.waiting import wait_until

PARENT = """
import sys, time
from kinesis_spout.storm.hosting.processes.child_process import ChildProcess, ChildSettings
child = ChildProcess(ChildSettings(command=("sh", "-c", "trap '' TERM; sleep 600 & wait")))
print(child.pid, flush=True)
time.sleep(600)
"""


def is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return all(" Z " in path.read_text() for path in Path("/proc").glob(f"{group}/stat"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_child_that_hangs_ends_with_its_parent(number: signal.Signals) -> None:
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        group = int(parent.stdout.readline())
        assert not is_gone(group)
        parent.send_signal(number)
    wait_until(lambda: is_gone(group), "the child and what it has started are gone")


def test_what_guards_a_child_ends_with_it() -> None:
    child = ChildProcess(ChildSettings(command=("cat",)))
    guard = child._guard
    assert guard is not None
    assert guard.poll() is None
    child.end()
    assert guard.returncode == 0
