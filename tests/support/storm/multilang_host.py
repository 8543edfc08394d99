"""The barest host of the multilang protocol: written from its documentation, without our codecs."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.waiting import DEADLINE_SECONDS


class BareHost:
    """Starts one component, and talks to it in JSON."""

    def __init__(
        self, command: Sequence[str], directory: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.pid_dir = directory
        self._errors = (directory / f"errors-{time.monotonic_ns()}").open("w+b")
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **(environment or {})},
            bufsize=0,
        )
        self._received = b""

    def say(self, message: Any) -> None:
        """Write a frame."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\nend\n")

    def hear(self) -> Any:
        """Give the next frame; anything that is none is an error."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while b"\nend\n" not in self._received:
            if not self._receive(deadline):
                raise EOFError(f"the component ended: {self.errors()}")
        frame, _, self._received = self._received.partition(b"\nend\n")
        return json.loads(frame)

    def shake_hands(self, conf: Mapping[str, Any] | None = None) -> int:
        """Open the conversation; give the component's process id."""
        context = {"taskid": 3, "componentid": "under-test", "task->component": {"3": "under-test"}}
        self.say({"conf": conf or {}, "context": context, "pidDir": str(self.pid_dir)})
        answer: dict[str, int] = self.hear()
        assert (self.pid_dir / str(answer["pid"])).is_file()
        return answer["pid"]

    def ask(self, command: str, **more: Any) -> list[Any]:
        """Give a spout a command; give its answer without the sync."""
        self.say({"command": command, **more})
        answer = []
        while (message := self.hear()) != {"command": "sync"}:
            answer.append(message)
        return answer

    def end(self) -> int:
        """Close the component's input, read what it still says, and give its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.wait()

    def terminate(self) -> int:
        """End it as Storm does."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Wait for its end, reading what it still says; give its exit code."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self._receive(deadline):
            pass
        return self.process.wait(DEADLINE_SECONDS)

    def errors(self) -> str:
        """Give its standard error so far."""
        self._errors.seek(0)
        return self._errors.read().decode()

    def close(self) -> None:
        """Kill what still runs."""
        self.process.kill()
        self.process.wait(DEADLINE_SECONDS)
        for pipe in (self.process.stdin, self.process.stdout, self._errors):
            if pipe is not None:
                pipe.close()

    def _receive(self, deadline: float) -> bytes:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"the component said nothing for {DEADLINE_SECONDS} s: {self.errors()}"
        data = os.read(self.process.stdout.fileno(), 65_536)
        self._received += data
        return data


@contextmanager
def hosted(
    *arguments: str, directory: Path, environment: Mapping[str, str] | None = None
) -> Iterator[BareHost]:
    """Start a Python program as a component, and end it."""
    host = BareHost([sys.executable, *arguments], directory, environment)
    try:
        yield host
    finally:
        host.close()
