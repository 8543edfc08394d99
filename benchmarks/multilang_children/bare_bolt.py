"""A bolt with nothing but the protocol: emits what it gets, and acks. The least that a child in Python can do."""

import json
import os
import sys
from pathlib import Path


def main() -> None:
    read, write, flush = sys.stdin.buffer.readline, sys.stdout.buffer.write, sys.stdout.buffer.flush

    def frame() -> bytes:
        line = read()
        if not line:
            sys.exit()
        read()  # end
        return line

    told = json.loads(frame())
    Path(told["pidDir"], str(os.getpid())).touch()
    write(b'{"pid": %d}\nend\n' % os.getpid())
    flush()
    while True:
        told = json.loads(frame())
        if told["stream"] == "__heartbeat":
            write(b'{"command":"sync"}\nend\n')
        elif "--acks-only" in sys.argv:
            write(b'{"command":"ack","id":"%s"}\nend\n' % told["id"].encode())
        else:
            emit = {
                "command": "emit",
                "anchors": [told["id"]],
                "tuple": told["tuple"],
                "need_task_ids": False,
            }
            write(json.dumps(emit).encode() + b"\nend\n")
            write(b'{"command":"ack","id":"%s"}\nend\n' % told["id"].encode())
        flush()


main()
