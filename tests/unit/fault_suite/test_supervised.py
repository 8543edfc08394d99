"""How the suite finds what a consumer has started."""

import os
import subprocess
import sys

from tests.fault.suite.consumers.supervised import _parts_of

GROUP_OF_ITS_OWN = """
import os, sys, time
if os.fork() == 0:
    os.setpgid(0, 0)
    sys.stdout.write("x")
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-c", "import sys; sys.stdin.read()  # a daemon"])
time.sleep(60)
"""


def test_a_process_below_is_found_also_in_a_group_of_its_own() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", GROUP_OF_ITS_OWN],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"x"
        deadline = 1_000
        found: list[int] = []
        while not found and deadline:
            found = [pid for pid in _parts_of(process.pid, "# a daemon") if os.getpgid(pid) != process.pid]
            deadline -= 1
        process.kill()
    assert len(found) == 1
