"""The parts of what is watched: members of applications, and stand-ins for what needs Spark."""

import threading
import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Final

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.consumer.handle import Handle
from kinesis_spout.plain.record_spout import RecordSpout
from kinesis_spout.plain.stream_tuples import Emitted

_PAUSE_SECONDS: Final = 0.02

Handler = Callable[[RecordSpout, Emitted], object]


def ack(spout: RecordSpout, emitted: Emitted) -> None:
    spout.ack(emitted.message_id)


class Member:
    """A spout and the thread that takes its tuples."""

    def __init__(self, spout: RecordSpout, handler: Handler = ack) -> None:
        self.spout = spout.open()
        self.handler = handler
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while not self._ending.is_set():
            emitted = self.spout.next_tuple()
            if emitted is None:
                self._ending.wait(_PAUSE_SECONDS)
            else:
                self.handler(self.spout, emitted)

    def hang(self) -> None:
        """Do not come back before it is closed; for a handler."""
        self._ending.wait()

    def close(self) -> None:
        self._ending.set()
        self._thread.join()
        self.spout.close()


class Repeated:
    """Calls something again and again, until it is closed."""

    def __init__(self, call: Callable[[], object], every_seconds: float) -> None:
        self._call = call
        self._every = every_seconds
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while not self._ending.wait(self._every):
            self._call()

    def close(self) -> None:
        self._ending.set()
        self._thread.join()


class Query:
    """A query of Spark's, as far as it is looked at."""

    id = "unused"

    def __init__(self, name: str) -> None:
        self.name = name
        self.isActive = True
        self.stands_since: float | None = None
        self.falls_back_since: float | None = None
        self.is_readable = True

    def exception(self) -> BaseException | None:
        return None

    @property
    def lastProgress(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        if not self.is_readable:
            raise ConnectionError("Spark's JVM is gone")
        now = time.time()
        at = self.stands_since or now
        lag = 0 if self.falls_back_since is None else now - self.falls_back_since
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1000):03d}Z"
        told = {
            "streams": [self.name], "avgMsBehindLatest": lag * 1000, "maxMsBehindLatest": lag * 1000,
            "numTotalShards": 4, "numProcessedRecords": 70, "numProcessedBytes": 700,
            "numAwsRateLimitErrors": 0, "bufferedBytes": 10,
        }  # fmt: skip
        source = {"latestOffset": {"kinesis": told}, "inputRowsPerSecond": 7.0, "processedRowsPerSecond": 7.0}
        return {"batchId": int(now), "timestamp": stamp, "sources": [source]}


class RunningTopology(Handle):
    """A topology, as far as its components are looked at."""

    name = "words"

    def __init__(self) -> None:
        self._began = time.time()
        self.failing_since: float | None = None

    def _consumers(self) -> Mapping[str, Consumer]:
        return {}

    @property
    def components(self) -> Mapping[str, Any]:
        now = time.time()
        failed = 0 if self.failing_since is None else int((now - self.failing_since) * 5)
        counts = {
            "executed": 0, "emitted": 0, "errors": 0, "timed_out": 0,
            "latency_ms": 1.0, "complete_latency_ms": 0.0,
        }  # fmt: skip
        return {"count": SimpleNamespace(acked=int((now - self._began) * 20), failed=failed, **counts)}
