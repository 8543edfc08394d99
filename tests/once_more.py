"""Run alone what failed beside other tests: ``python -m tests.once_more``, after pytest ended with 1.

Four workers share two cores with Spark, ZooKeeper and a browser, and a test that waits for these may wait in vain.
Alone it has the machine for itself. What passes then is to be mended, and is added to ``tests/needed_twice.txt``.
A test that is named there, and needs its second run again, fails the build.

What was lost once is lost. Tests that look for a loss, an order, a fence or a race of threads are marked
``no_second_run`` and have none, nor have more than a few.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

NEVER_AGAIN = "no_second_run"
AT_MOST = 5


def main(
    found: Path = Path(".pytest_cache/v/cache/lastfailed"), known: Path = Path("tests/needed_twice.txt")
) -> int:
    """Give 0 when each of a few failed tests passes alone, for the first time, else 1."""
    if not found.exists():
        return 1  # no test failed, but the run did
    failed = sorted(json.loads(found.read_text()))
    if len(failed) > AT_MOST:
        return 1
    # Also 1 where the tests cannot be collected.
    marked = _pytest("--collect-only", "--quiet", "-m", NEVER_AGAIN, *failed, silent=True)
    if marked != pytest.ExitCode.NO_TESTS_COLLECTED:
        return 1
    print(f"== once more, alone ({len(failed)} of the tests failed beside the others)", flush=True)
    if _pytest(*failed):
        return 1
    print("Passed alone, failed beside the others; please mend:", *failed, sep="\n  ")
    before = known.read_text().splitlines()
    if again := [each for each in failed if each in before]:
        print(f"Not for the first time, says {known}:", *again, sep="\n  ")
        return 1
    known.write_text("\n".join([*before, *failed, ""]))
    return 0


def _pytest(*arguments: str, silent: bool = False) -> int:
    command = [sys.executable, "-m", "pytest", "-m", "", *arguments]  # a later -m counts
    return subprocess.run(command, check=False, stdout=subprocess.DEVNULL if silent else None).returncode


if __name__ == "__main__":
    sys.exit(main())
