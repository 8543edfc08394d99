"""Shell bolts that count words in their own memory, from files that come with the job and are nowhere else."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple
from zipfile import ZipFile

from kinesis_spout.storm import BasicBolt, ShellBolt, TopologyBuilder, Tuple

TALLYING_TASKS: Final = 2
_COMPONENT: Final = """
import os, time
from collections import Counter
from protocol import ack, emit, hello, read, send

seen = Counter()
hello()
while True:
    message = read()
    if message["task"] == -1:
        send({"command": "sync"})
        continue
    word = message["tuple"][0]
    seen[word] += 1
    emit(message, [word, seen[word], os.getpid(), os.environ["SPARK_LOCAL_IP"], os.getcwd()])
    ack(message)
"""


class Tally(NamedTuple):
    """A shell bolt has seen a word."""

    bolt: str
    word: str
    times: int
    pid: int
    machine: str
    """Of its process."""
    served: str
    """The machine of the Python worker that it did so for."""
    folder: str


class _LogTallies(BasicBolt):
    def __init__(self, folder: Path) -> None:
        self._file = folder / "tallies"

    def process(self, tup: Tuple) -> None:
        word, times, pid, machine, folder = tup.values
        line = [tup.source.component, word, times, pid, machine, os.environ["SPARK_LOCAL_IP"], folder]
        file = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, ("\t".join(map(str, line)) + "\n").encode())
        finally:
            os.close(file)


def tallies(folder: Path) -> list[Tally]:
    """Read what was logged."""
    file = folder / "tallies"
    rows = [line.split("\t") for line in file.read_text().splitlines()] if file.exists() else []
    return [Tally(bolt, word, int(times), int(pid), *rest) for bolt, word, times, pid, *rest in rows]


def make_archive(place: Path) -> None:
    """Make an archive of the component."""
    with ZipFile(place, "w") as archive:
        archive.write(Path(__file__).parent / "shell_components/protocol.py", "protocol.py")
        archive.writestr("tally.py", _COMPONENT)


def add_tallies(builder: TopologyBuilder, resources: Mapping[str, str], folder: Path) -> None:
    """Add shell bolts that are given every word; what they say is logged in a folder."""
    fields = ("word", "times", "pid", "machine", "folder")
    for name, shipped in resources.items():
        bolt = ShellBolt([sys.executable, "tally.py"], fields=fields, resources=shipped)
        builder.set_bolt(name, bolt, TALLYING_TASKS).fields_grouping("split", ["word"])
        builder.set_bolt(f"log of {name}", _LogTallies(folder), 2).shuffle_grouping(name)
