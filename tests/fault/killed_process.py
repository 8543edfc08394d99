"""A process that is killed after a while, and what it told until then."""

import os
import signal
import threading
from collections.abc import Callable


def tell(pipe: int, *lines: str) -> None:
    """Tell whoever started this process; several threads may."""
    os.write(pipe, "".join(f"{line}\n" for line in lines).encode())


def told_until_killed(work: Callable[[int], None], seconds: float) -> bytes:
    """Do the work in a process of its own, kill that with SIGKILL, and give what it told over its pipe."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        try:
            work(writing)
        finally:
            os._exit(1)  # nobody should get here
    os.close(writing)
    killer = threading.Timer(seconds, os.kill, (child, signal.SIGKILL))
    killer.start()
    told = b"".join(iter(lambda: os.read(reading, 1 << 16), b""))
    os.close(reading)
    killer.join()
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        raise SystemExit(f"a process ended by itself, after {told[-200:]!r}")
    return told
