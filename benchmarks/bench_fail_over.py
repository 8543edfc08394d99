"""How long shards stand still when their consumer is killed, or stops; how soon one that joins has its share.

Two processes share 8 shards. Every 0.1 s a record is put into each of them. One process is killed with SIGKILL, or
told to stop; the time runs until the other one is given the first record of a shard that was the first one's. Then
it is started again; that time runs from when it is about to join until it is given its first record. Wall time, of
course: most of it is the session time-out. The embedded ZooKeeper and the endpoint are processes of others.
"""

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from bench_low_rate import put
from canned_kinesis import CannedKinesis
from figures import Figure, Step
from sharing_consumer import READY

from kinesis_spout.zookeeper import EmbeddedZooKeeper

SHARDS: Final = 8
_PUT_SECONDS: Final = 0.1
_LOOK_SECONDS: Final = 0.01
_DEADLINE_SECONDS: Final = 120.0
_WAYS: Final = (
    # door, session time-out, goals of the median and of the longest
    ("plain", 6.0, 7.0, 9.0),
    ("plain", 3.0, 4.0, None),
    ("spark", 6.0, 7.0, 9.0),
)
_names = itertools.count(1)


def figures(*, quick: bool) -> Iterator[Figure | Step]:
    with (
        tempfile.TemporaryDirectory() as directory,
        CannedKinesis() as kinesis,
        EmbeddedZooKeeper(Path(directory, "zookeeper"), tick_millis=500) as server,
    ):
        for kind, session, median_goal, most_goal in _WAYS:
            yield Step(f"{kind}, session of {session:g} s")
            pair = _Pair(kind, session, kinesis, server, Path(directory))
            try:
                yield from pair.figures(3 if quick else 12, median_goal, most_goal)
            finally:
                pair.close()


class _Process:
    """One consumer. Mutable."""

    def __init__(self, kind: str, notes: Path, settings: dict[str, Any]) -> None:
        self._notes = notes
        notes.touch()
        self.process = subprocess.Popen(
            [
                sys.executable,
                str(Path(__file__).with_name("sharing_consumer.py")),
                kind,
                str(notes),
                json.dumps(settings),
            ],
            stdin=subprocess.PIPE,
        )

    def notes(self, since: float = 0.0) -> list[tuple[float, str]]:
        """Give the records that it was given, when and of which shard."""
        return [(at, shard_id) for at, shard_id in self._all() if at > since and shard_id != READY]

    def _all(self) -> list[tuple[float, str]]:
        found = [line.split() for line in self._notes.read_text().splitlines()]
        return [(float(at), what) for at, what in found]

    def shards(self, since: float) -> set[str]:
        return {shard_id for _, shard_id in self.notes(since)}

    def ready_at(self) -> float:
        """When it was about to join."""
        return next(at for at, shard_id in self._all() if shard_id == READY)

    def kill(self) -> None:
        self.process.kill()

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def close(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()


class _Pair:
    """Mutable: two consumers of one application, and who puts records for them."""

    def __init__(
        self, kind: str, session: float, kinesis: CannedKinesis, server: EmbeddedZooKeeper, directory: Path
    ) -> None:
        self._name = f"{kind}, session of {session:g} s"
        self._kind = kind
        self._directory = directory
        self._stream = f"shards-{SHARDS}-{next(_names)}"
        self._url = kinesis.url
        self._settings = {
            "stream": self._stream,
            "app": "benchmark",
            "zookeeper": server.connect_string,
            "session_timeout_seconds": session,
            "initial_position": "trim_horizon",
            "region": kinesis.settings.region,
            "endpoint_url": kinesis.settings.endpoint_url,
            "aws_access_key_id": kinesis.settings.aws_access_key_id,
            "aws_secret_access_key": kinesis.settings.aws_secret_access_key,
            "dead_letters": str(directory / "dead-letters"),
        }
        self._ended = threading.Event()
        self._putting = threading.Thread(target=self._put, daemon=True)
        self._putting.start()
        self._one, self._other = self._start(), self._start()

    def figures(self, rounds: int, median_goal: float, most_goal: float | None) -> Iterator[Figure]:
        killed, stopped, joined = [], [], []
        for number in range(2 * rounds):
            self._until_shared()
            is_kill = number % 2 == 0
            began = time.monotonic()
            theirs = self._one.shards(began - 1.0)
            if is_kill:
                self._one.kill()
            else:
                self._one.stop()
            (killed if is_kill else stopped).append(self._first(self._other, theirs, began) - began)
            self._one.process.wait()
            # The other one is the next to be killed: each of them leads in turn.
            self._one, self._other = self._other, self._start()
            joined.append(self._took_to_join())
        yield from (
            _figure(f"{self._name}: killed, p50", killed, median_goal),
            _figure(f"{self._name}: killed, longest", killed, most_goal, longest=True),
            _figure(f"{self._name}: stopped, p50", stopped, 2.0),
            _figure(f"{self._name}: stopped, longest", stopped, None, longest=True),
            _figure(f"{self._name}: joined, p50", joined, 5.0),
            _figure(f"{self._name}: joined, longest", joined, None, longest=True),
        )

    def close(self) -> None:
        self._ended.set()
        self._putting.join()
        self._one.close()
        self._other.close()

    def _start(self) -> _Process:
        return _Process(self._kind, self._directory / f"notes-{next(_names)}", self._settings)

    def _put(self) -> None:
        while not self._ended.wait(_PUT_SECONDS):
            put(self._url, self._stream, range(SHARDS))

    def _took_to_join(self) -> float:
        """Say how long the newcomer waited for its first record; its process may have taken seconds to start."""
        (first, _), *_ = self._wait(self._other.notes, "the newcomer has a record")
        ready = self._other.ready_at()
        return max(0.0, first - ready)

    def _until_shared(self) -> None:
        def shared() -> bool:
            since = time.monotonic() - 1.5
            one, other = self._one.shards(since), self._other.shards(since)
            return len(one) == len(other) == SHARDS // 2 and not one & other

        self._wait(shared, "each has its half")

    def _first(self, process: _Process, shards: set[str], since: float) -> float:
        found = self._wait(
            lambda: [at for at, shard_id in process.notes(since) if shard_id in shards],
            "the other one is given a record of these shards",
        )
        return min(found)

    def _wait(self, condition: Any, what: str) -> Any:
        until = time.monotonic() + _DEADLINE_SECONDS
        while not (found := condition()):
            if time.monotonic() > until:
                raise AssertionError(f"waited {_DEADLINE_SECONDS:g} s in vain until {what}")
            time.sleep(_LOOK_SECONDS)
        return found


def _figure(what: str, seconds: list[float], goal: float | None, *, longest: bool = False) -> Figure:
    value = max(seconds) if longest else statistics.median(seconds)
    return Figure(what=what, value=value, unit="s", at_most=goal, note=f"of {len(seconds)}")
