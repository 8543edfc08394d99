"""moto's servers of AWS' other services, in a process of its own: kcl-rs keeps its leases in DynamoDB."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import PIPE, Popen

from moto.server import ThreadedMotoServer


@contextmanager
def other_services() -> Iterator[str]:
    """Serve them while the block runs; gives their address."""
    process = Popen([sys.executable, __file__], stdin=PIPE, stdout=PIPE, text=True)
    assert process.stdout is not None
    yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    process.communicate()  # closes its standard input, which ends it


if __name__ == "__main__":
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line per request otherwise
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    print(server.get_host_and_port()[1], flush=True)
    sys.stdin.read()
