"""What it costs to run a component of another language: tuples through a shell bolt, and through a bare loop.

Each write wakes the child, and each answer its host: on a busy machine wall time is that of its scheduler. So the
best of several runs counts.

The bare loop does what any host must: it writes a tuple as JSON, keeps at most as many at the child, reads answers
and decodes them. The child is the same process for both, in turns.
"""

import importlib.util
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import msgspec
from figures import Figure, Step

from kinesis_spout.storm import DEFAULT_STREAM, ShellBolt, TaskContext, Tuple
from kinesis_spout.storm.components.tuples import Source

TUPLES: Final = 50_000
MAX_PENDING: Final = 100
_CHILDREN: Final = Path(__file__).parent / "multilang_children"
_VALUES: Final = ["the cow jumped over the moon", 17]
_SOURCE: Final = Source("spout", DEFAULT_STREAM, 1, ("sentence", "number"))
_CONTEXT: Final = TaskContext(topology="benchmark", component="echo", task=2, index=0, parallelism=1)


def figures(*, quick: bool) -> Iterator[Figure]:
    repeats = 3 if quick else 7
    yield from _figures("bare child, emit and ack", [str(_CHILDREN / "bare_bolt.py")], repeats)
    yield from _figures("bare child, ack alone", [str(_CHILDREN / "bare_bolt.py"), "--acks-only"], repeats)
    if importlib.util.find_spec("pystorm") is None:
        yield Figure(what="pystorm bolt", value=None, unit="tuples/s", note="pystorm is not installed")
        return
    yield from _figures("pystorm bolt, emit and ack", [str(_CHILDREN / "pystorm_bolt.py")], repeats)


class Run(NamedTuple):
    """One repetition."""

    seconds: float
    own_cpu_seconds: float


def _figures(what: str, script: list[str], repeats: int) -> Iterator[Figure | Step]:
    yield Step(what)
    command = [sys.executable, *script]
    with _Shell(command) as shell, _BareLoop(command) as bare:
        pairs = [(shell.run(), bare.run()) for _ in range(repeats + 1)][1:]
    ratio = min(loop.seconds for _, loop in pairs) / min(ours.seconds for ours, _ in pairs)
    for name, runs in (
        ("bare loop", [loop for _, loop in pairs]),
        ("ShellBolt", [ours for ours, _ in pairs]),
    ):
        seconds = min(run.seconds for run in runs)
        cpu = statistics.median(run.own_cpu_seconds for run in runs)
        ours = name == "ShellBolt"
        yield Figure(
            what=f"{what}: {name}",
            value=TUPLES / seconds,
            unit="tuples/s",
            reference="bare loop" if ours else "",
            ratio=ratio if ours else None,
            cheaper_at_least=0.8 if ours else None,
            note=f"{cpu / TUPLES * 1e6:.1f} µs CPU/tuple in the host's process; "
            f"{seconds / TUPLES * 1e6:.1f} µs in all",
        )


def _measured(work: Callable[[], None]) -> Run:
    cpu, started = time.process_time(), time.perf_counter()
    work()
    return Run(time.perf_counter() - started, time.process_time() - cpu)


class _Counting:
    """A collector that counts."""

    def __init__(self) -> None:
        self.emitted = self.acked = 0

    def emit(self, values: Sequence[Any], anchors: Any = (), stream: str = DEFAULT_STREAM) -> None:
        del values, anchors, stream
        self.emitted += 1

    def ack(self, tup: Tuple) -> None:
        del tup
        self.acked += 1

    def is_overdue(self, tup: Tuple) -> bool:
        del tup
        return False

    def report_error(self, error: BaseException) -> None:
        raise error

    def report_metric(self, name: str, value: Any) -> None:
        del name, value


class _Shell:
    def __init__(self, command: list[str]) -> None:
        self._bolt = ShellBolt(command, fields=_SOURCE.fields, max_pending=MAX_PENDING)
        self._collector = _Counting()

    def __enter__(self) -> Self:
        self._bolt.prepare({}, _CONTEXT, self._collector)  # type: ignore[arg-type]  # all that it needs
        return self

    def __exit__(self, *_: object) -> None:
        self._bolt.cleanup()

    def run(self) -> Run:
        before = self._collector.acked

        def work() -> None:
            execute = self._bolt.execute
            for _ in range(TUPLES):
                execute(Tuple(_VALUES, _SOURCE))
            self._bolt.flush()

        run = _measured(work)
        assert self._collector.acked - before == TUPLES
        return run


class _BareLoop:
    def __init__(self, command: list[str]) -> None:
        self._command = command

    def __enter__(self) -> Self:
        self._pid_folder = tempfile.TemporaryDirectory()
        self._child = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._stdin, self._stdout = self._child.stdin.fileno(), self._child.stdout.fileno()
        hello = {
            "conf": {"topology.name": "benchmark"},
            "context": {"taskid": 2, "componentid": "echo", "task->component": {"2": "echo"}},
            "pidDir": self._pid_folder.name,
        }
        os.write(self._stdin, msgspec.json.encode(hello) + b"\nend\n")
        answer = b""
        while b"pid" not in answer or not answer.endswith(b"end\n"):
            answer += os.read(self._stdout, 65536)
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        self._child.communicate()
        self._pid_folder.cleanup()

    def run(self) -> Run:
        return _measured(self._loop)

    def _loop(self) -> None:
        encode, decode = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode
        sent = acked = 0
        rest = b""
        waits = select.poll()
        waits.register(self._stdout, select.POLLIN)
        while acked < TUPLES:
            room = min(MAX_PENDING - (sent - acked), TUPLES - sent)
            if room > 0:
                frames = [
                    encode(
                        {"id": str(number), "comp": "spout", "stream": "default", "task": 1, "tuple": _VALUES}
                    )
                    for number in range(sent, sent + room)
                ]
                os.write(self._stdin, b"\nend\n".join(frames) + b"\nend\n")
                sent += room
            waits.poll()
            *answers, rest = (rest + os.read(self._stdout, 1024 * 1024)).split(b"\nend\n")
            for answer in answers:
                if decode(answer).get("command") == "ack":
                    acked += 1
