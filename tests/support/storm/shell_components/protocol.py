"""The bare protocol for the components that tests start, as its documentation describes it."""

import json
import os
import sys
from pathlib import Path
from typing import Any, Final

Message = dict[str, Any]

HANG_MARK: Final = "HANG_MARK"
"""Names the file that makes this component hang: see ``tests.support.storm.hang_clock``."""


def read() -> Any:
    """Read a message; end when the host is gone."""
    lines = []
    while (line := sys.stdin.readline()) != "end\n":
        if not line:
            sys.exit(0)
        lines.append(line)
    return json.loads("".join(lines))


def send(message: Message) -> None:
    sys.stdout.write(json.dumps(message) + "\nend\n")
    sys.stdout.flush()


def say_that_it_hangs() -> None:
    if HANG_MARK in os.environ:
        Path(os.environ[HANG_MARK]).touch()


def say_that_it_goes_on() -> None:
    if HANG_MARK in os.environ:
        Path(os.environ[HANG_MARK]).unlink(missing_ok=True)


def hello() -> Message:
    """Shake hands. Gives what the host told."""
    told: Message = read()
    Path(told["pidDir"], str(os.getpid())).touch()
    send({"pid": os.getpid()})
    return told


def ack(message: Message) -> None:
    send({"command": "ack", "id": message["id"]})


def emit(message: Message, values: list[Any], **more: Any) -> None:
    """Emit a tuple, anchored to the one given."""
    anchored = {"anchors": [message["id"]], "tuple": values, "need_task_ids": False}
    send({"command": "emit", **anchored, **more})
