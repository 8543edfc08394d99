"""The web page of the demo's application: `kinesis-spout web`, in a process of its own that ends with the demo."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from examples.demo.consumers.settings import ConsumerSettings
from examples.demo.processes.endpoint import HOST
from examples.demo.processes.log_tail import log_tail
from kinesis_spout import KinesisSpoutError

_STOP_SECONDS: Final = 15.0
_PROGRAM: Final = """
import os, signal, sys, threading

def end_with_the_demo():
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=end_with_the_demo, daemon=True).start()
from kinesis_spout.cli.app import main
main()
"""


class Page:
    """Serves the page. A context manager: it ends with it, or when this process ends."""

    def __init__(self, port: int, settings: ConsumerSettings, environment: Mapping[str, str]) -> None:
        config = settings.spout_config()
        named = {
            "http": f"{HOST}:{port}",
            "app": config.app,
            "stream": config.stream,
            "zookeeper": config.zookeeper,
            "endpoint-url": settings.endpoint_url,
            "region": settings.region,
            "dead-letters": config.dead_letters_url,
        }
        options = [word for name, value in named.items() for word in (f"--{name}", value)]
        self._log = Path(settings.directory) / "page.log"
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 - our own command line
                [sys.executable, "-c", _PROGRAM, "web", "--allow-changes", "--show-data", *options],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                start_new_session=True,
            )

    def check(self) -> None:
        """Raise KinesisSpoutError with the end of its log if it ended by itself."""
        status = self._process.poll()
        if status is not None:
            raise KinesisSpoutError(
                f"expected the page to be served, it ended with status {status}.\n{log_tail(self._log)}"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None, "it is started with a pipe"
        self._process.stdin.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
