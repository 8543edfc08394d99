"""Keyed state and a spool: each release goes on from what the other one has left when it was killed."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from kinesis_spout.zookeeper import EmbeddedZooKeeper
from tests.fault.suite.consumers.supervised import Release
from tests.fault.test_killed_state import seen
from tests.support.storm.state_process import CUSTOMERS
from tests.support.zookeeper.server import end_session

_COMMITS: Final = 3
_PUT: Final = 20

_SPOOL_PROGRAM: Final = """
import json, os, sys
from kinesis_spout import DiskSpool
from kinesis_spout.kinesis.write.put_records import Entry

folder, name, count = sys.argv[1:]
spool = DiskSpool(folder, stream="orders", durability="record")
found = []
while records := spool.recovered(7):
    found += [(record.entry.partition_key, record.entry.data.hex()) for record in records]
    spool.confirm([record.number for record in records])
spool.append(*(Entry(f"{name}-{number}", bytes(range(number))) for number in range(int(count))))
print(json.dumps(found), flush=True)
os._exit(0)  # as a kill: nothing is closed
"""


def unread_stores(folder: Path, old: Release, new: Release, show: Callable[[str], None]) -> list[str]:
    """Have both releases write in turn, old and new and back; say what was not read as it was written."""
    turns = [old, new, old, new, old]
    found = [*_unread_spool(folder / "spool", turns), *_unread_state(folder / "state", turns)]
    show(f"spool and keyed state, from one to the other and back: {'; '.join(found) or 'read'}")
    return found


def _unread_spool(folder: Path, turns: list[Release]) -> Iterator[str]:
    written: set[tuple[str, str]] = set()
    before: set[tuple[str, str]] = set()
    for turn, release in enumerate(turns):
        name = f"{turn}-{release.name}"
        done = subprocess.run(
            [release.python, "-c", _SPOOL_PROGRAM, str(folder), name, str(_PUT)],
            cwd=release.folder,
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            yield f"the spool of turn {turn} could not be used by {release.name}: {done.stderr.strip()[-300:]}"
            return
        found = {(key, data) for key, data in json.loads(done.stdout)}
        # Older ones may come again: what was confirmed just before a kill.
        if missing := before - found:
            yield f"{release.name} did not find {len(missing)} records of the spool in turn {turn}"
        if strange := found - written:
            yield f"{release.name} found {len(strange)} records in turn {turn} that nobody wrote"
        before = {(f"{name}-{number}", bytes(range(number)).hex()) for number in range(_PUT)}
        written |= before


def _unread_state(folder: Path, turns: list[Release]) -> Iterator[str]:
    files = folder / "files"
    files.mkdir(parents=True)
    finished = 0
    with EmbeddedZooKeeper(folder / "zookeeper") as server:
        for turn, release in enumerate(turns):
            arguments = [server.connect_string, "upgrade", f"counts-{turn}", str(files), "2"]
            with subprocess.Popen(
                [release.python, "-m", "tests.support.storm.state_process", *arguments],
                cwd=release.folder,
                stdout=subprocess.PIPE,
            ) as process:
                assert process.stdout is not None
                session = process.stdout.readline().split()
                told = [process.stdout.readline() for _ in range(_COMMITS)]
                process.kill()
            if told != [b"committed\n"] * _COMMITS:
                yield f"{release.name} could not go on with the state in turn {turn}"
                return
            end_session(server, (int(session[0]), bytes.fromhex(session[1].decode())))
            before, (finished, counts) = finished, seen(server, "upgrade", files)
            expected = {
                customer: sum(number % CUSTOMERS == customer for number in range(1, finished + 1))
                for customer in range(CUSTOMERS)
            }
            if finished <= before or counts != expected:
                yield f"{release.name} counted {counts} in turn {turn}, with {finished} records after {before}"
