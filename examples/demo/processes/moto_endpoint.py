"""moto's server as a process: ``python -m examples.demo.processes.moto_endpoint PORT``. Ends with its input."""

import sys

from moto.server import ThreadedMotoServer

if __name__ == "__main__":
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=int(sys.argv[1]), verbose=False)
    server.start()
    sys.stdin.buffer.read()
    server.stop()
