"""Run alone what failed beside other tests: ``python -m tests.once_more``, after pytest ended with 1.

Four workers share two cores with Spark, ZooKeeper and a browser, and a test that waits for these may wait in vain.
Alone it has the machine for itself; what passes then is listed, as a test to mend. A loss that was seen once is a
loss: tests that look for one in random histories and faults are not run again, nor are more than a few.
"""

import json
import subprocess
import sys
from pathlib import Path

NEVER_AGAIN = ("tests/fault/", "tests/model/")
BUT_FOR = ("tests/fault/test_alerts.py", "tests/fault/test_topology_rates.py")
"""They are about how long something takes."""
AT_MOST = 5


def main(found: Path = Path(".pytest_cache/v/cache/lastfailed")) -> int:
    """Give 0 when each of a few failed tests passes alone, else 1."""
    failed = sorted(json.loads(found.read_text()))
    if len(failed) > AT_MOST or any(
        each.startswith(NEVER_AGAIN) and not each.startswith(BUT_FOR) for each in failed
    ):
        return 1
    print(f"== once more, alone ({len(failed)} of the tests failed beside the others)", flush=True)
    if subprocess.run([sys.executable, "-m", "pytest", *failed], check=False).returncode:
        return 1
    print("Passed alone, failed beside the others; please mend:", *failed, sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
