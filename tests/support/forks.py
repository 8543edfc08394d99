"""What a call ends with in a forked child."""

import os
import select
import signal
from collections.abc import Callable

from tests.support.waiting import DEADLINE_SECONDS


def in_a_fork(act: Callable[[], object]) -> str:
    """Call ``act`` in a forked child; give its error as text, "None" if it returns, or "hangs"."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        ended = "None"
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - whatever it is
            ended = f"{type(error).__name__}: {error}"
        finally:
            os.write(writing, ended.encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as said:
        has_ended, _, _ = select.select([said], [], [], DEADLINE_SECONDS)
        if not has_ended:
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return said.read().decode() if has_ended else "hangs"
