"""Bash and zsh complete commands and options at the first Tab."""

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SECONDS = 60.0
SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source completion"),
    "zsh": (["zsh", "-f", "-i"], "autoload -Uz compinit; compinit -u -D; source completion"),
}


class Typing:
    """Types into a shell on a terminal of its own, and reads what it shows."""

    def __init__(self, near_end: int) -> None:
        self._near_end = near_end
        self._shown = ""

    def type(self, text: str) -> None:
        os.write(self._near_end, text.encode())

    def await_text(self, text: str) -> None:
        deadline = time.monotonic() + SECONDS
        while text not in self._shown:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._near_end], [], [], left)[0]:
                pytest.fail(f"waited {SECONDS:g} s in vain for {text!r}, got {self._shown!r}")
            self._shown += os.read(self._near_end, 4096).decode(errors="replace")
        self._shown = self._shown.partition(text)[2]


@contextmanager
def a_shell(name: str, folder: Path) -> Iterator[Typing]:
    command = folder / "bin" / "kinesis-spout"
    command.parent.mkdir()
    command.write_text(
        f'#!/bin/sh\nexec {sys.executable} -c "from kinesis_spout.cli.app import main; main()" "$@"\n'
    )
    command.chmod(0o755)
    path = f"{command.parent}:{os.environ['PATH']}"
    script = subprocess.run(
        [command],
        env={**os.environ, "_KINESIS_SPOUT_COMPLETE": f"source_{name}"},
        check=True,
        capture_output=True,
    ).stdout
    (folder / "completion").write_bytes(script)
    arguments, load = SHELLS[name]
    near_end, far_end = pty.openpty()
    process = subprocess.Popen(
        arguments,
        cwd=folder,
        env={"PATH": path, "TERM": "dumb", "HOME": str(folder)},
        stdin=far_end,
        stdout=far_end,
        stderr=far_end,
        start_new_session=True,
    )
    os.close(far_end)
    try:
        typing = Typing(near_end)
        typing.type(f"{load}; PS1='rea''dy> '\n")
        typing.await_text("ready> ")
        yield typing
    finally:
        process.kill()
        process.wait()
        os.close(near_end)


@pytest.mark.parametrize("name", SHELLS)
def test_commands_and_options_are_completed(name: str, tmp_path: Path) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    with a_shell(name, tmp_path) as typing:
        typing.type("kinesis-spout dead-l\t")
        typing.await_text("dead-letters ")
        typing.type("redr\t")
        typing.await_text("redrive ")
        typing.type("--dry\t")
        typing.await_text("--dry-run ")


def test_the_words_that_a_setting_takes_are_completed(tmp_path: Path) -> None:
    with a_shell("bash", tmp_path) as typing:
        typing.type("kinesis-spout run module:handle --order unor\t")
        typing.await_text("unordered ")
