"""A spout of the user's own, on the driver: asked for tuples, run as micro-batches, told what became of each.

One thread does it all, so that the spout is never called by two: it asks for tuples until there are none or
enough, or 50 ms are over, runs them as one job, and tells of each how it ended. At most ``max_spout_pending``
tuples are out at a time.
"""

import logging
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final

from pyspark import SparkContext, cloudpickle

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.consumer.counters import Counters
from kinesis_spout.model.errors import HandlerKilledWorker, InvalidConfig, KinesisSpoutError
from kinesis_spout.model.handler import failure_of, failure_saying
from kinesis_spout.spark.driver.running_query import RunningQuery
from kinesis_spout.spark.tasks.jobs import cancel, tags_of
from kinesis_spout.storm.acking import Ending, TreeEnd
from kinesis_spout.storm.components.context import TaskContext
from kinesis_spout.storm.components.output import DEFAULT_STREAM, Stream, check_values, names_of
from kinesis_spout.storm.components.spout import Spout
from kinesis_spout.storm.pickling import why_unfit
from kinesis_spout.storm.running.component_counts import ComponentCounts
from kinesis_spout.storm.running.program import Program
from kinesis_spout.storm.running.reported_errors import ReportedErrors
from kinesis_spout.storm.running.tick_clock import TickClock
from kinesis_spout.storm.spark.job_guard import JobGuard
from kinesis_spout.storm.spark.tasks.given_tuples import FirstStageOfTuples, GivenTuple, packed_share
from kinesis_spout.storm.spark.tasks.job import TopologyJobs
from kinesis_spout.storm.spark.tasks.stages import EndedTuples

_SHORTEST_REST: Final = 0.005
_LONGEST_REST: Final = 0.2
"""Between two rounds in which the spout had nothing."""
_GATHER_SECONDS: Final = 0.05
"""A spout that makes its tuples slowly, or waits for each, is asked no longer for those of one micro-batch."""
_JOIN_SECONDS: Final = 30.0
_RECENT_PROGRESS: Final = 100

_log: Final = logging.getLogger(__name__)


class SpoutHangs(KinesisSpoutError):  # noqa: N818 - what happened
    """A spout of the user's own does not return from a call."""


class GatheringCollector:
    """Takes what a spout emits until it travels. Mutable."""

    def __init__(self, name: str, streams: dict[str, Stream]) -> None:
        self._name = name
        self._streams = streams
        self.gathered: list[tuple[Sequence[Any], Any, str]] = []
        """Values, message id and stream of each tuple."""
        self.counts = ComponentCounts()
        self._errors = ReportedErrors(f"spout {name}", self.counts, monotonic)

    def emit(self, values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT_STREAM) -> None:
        declared = self._streams.get(stream)
        where = f"spout {self._name!r}"
        if declared is None or declared.direct:
            known = names_of(name for name, each in self._streams.items() if not each.direct)
            raise InvalidConfig(f"{where}: expected a stream that it declares ({known}), got {stream!r}")
        check_values(f"{where}, stream {stream!r}", values, len(declared.fields))
        kept = values if isinstance(values, tuple) else list(values)  # The spout may use its list again.
        self.gathered.append((kept, message_id, stream))

    def report_error(self, error: BaseException) -> None:
        self._errors.report(error)

    def refused(self, given: GivenTuple, error: Exception) -> TreeEnd:
        """Take in that a tuple cannot travel: an error, which is reported where nobody waits for the tuple.

        Returns:
            How the tuple's tree ends.
        """
        fields = self._streams[given.stream].fields
        reason = why_unfit(given.stream, fields, given.values, error, cloudpickle.dumps)
        self.counts.emitted += 1
        if given.is_tracked:
            self._errors.count(reason)
        else:
            self.report_error(TypeError(reason))
        return TreeEnd(ending=Ending.FAILED, component=self._name, failure=failure_saying(reason))

    def report_metric(self, name: str, value: Any) -> None:
        self.counts.report(name, value)


class OwnSpoutQuery(RunningQuery):
    """A running spout of the user's own. The handle's methods may be called from any thread."""

    def __init__(
        self,
        spout: Spout,
        context: TaskContext,
        spark: SparkContext,
        *,
        program: Program,
        streams: dict[str, Stream],
        max_pending: int,
        job_timeout_seconds: float,
        name: str,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__(name)
        self._spout = spout
        self._context = context
        self._spark = spark
        self._program = program
        self._jobs = TopologyJobs(spark, program, None)
        self._ticks = TickClock(program.ticks, monotonic())
        self._collector = GatheringCollector(context.component, streams)
        self._max_pending = max_pending
        self._clock = clock
        self._job_timeout = job_timeout_seconds
        self._tags = tags_of(f"{name}-{context.component}")
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._idle_since: float | None = None
        self._tag = ""
        self._error: BaseException | None = None
        self._counted = Counters()
        """What happened since the start. Nothing is given up: the spout decides what comes again."""
        self._batches = 0
        self._progress: deque[dict[str, Any]] = deque(maxlen=_RECENT_PROGRESS)
        self._thread = threading.Thread(target=self._run, name=f"kinesis-spout-{name}", daemon=True)

    def start(self) -> None:
        """Open and activate the spout, then begin to ask it for tuples.

        Raises:
            Whatever the spout raises; it is closed then.
        """
        try:
            self._spout.open(self._program.conf_of(self._context.component), self._context, self._collector)
            self._spout.activate()
        except BaseException:
            self._spout.close()
            raise
        self._thread.start()

    @property
    def id(self) -> str:
        """The same for every run of this spout of this topology."""
        return str(
            uuid.uuid5(
                uuid.NAMESPACE_URL, f"kinesis-spout:{self._program.topology}/{self._context.component}"
            )
        )

    @property
    def isActive(self) -> bool:  # noqa: N802
        """Whether it runs: it was neither stopped nor ended by an error."""
        return not self._ended.is_set()

    @property
    def is_done(self) -> bool:
        """False: a spout of your own has no end."""
        return False

    def _status_while_active(self) -> dict[str, Any]:
        message = "Running a micro-batch" if self._tag else "Waiting for tuples"
        return {"message": message, "isDataAvailable": False, "isTriggerActive": bool(self._tag)}

    def _consumers(self) -> Mapping[str, Consumer]:
        return {}

    def _counted_before(self) -> Iterable[Counters]:
        return (self._counted,)

    @property
    def counts(self) -> dict[str, ComponentCounts]:
        """What the components have done; see ``TopologyJobs``."""
        counts = self._jobs.counts
        counts.setdefault(self._context.component, ComponentCounts()).add(self._collector.counts)
        return counts

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802
        """The progress of the newest micro-batches, oldest first, at most 100."""
        return list(self._progress)

    def exception(self) -> BaseException | None:
        """The error that ended it, if one did."""
        return self._error

    def _await_end(self, timeout: float | None) -> bool:
        return self._ended.wait(timeout)

    def processAllAvailable(self) -> None:  # noqa: N802
        """Wait until the spout has had nothing to emit, and nothing of it is under way, for a moment."""
        since = monotonic()
        while not self._ended.wait(_SHORTEST_REST):
            idle_since = self._idle_since
            if idle_since is not None and idle_since > since:
                return
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """End: what runs may end, then the spout is deactivated and closed. May be called twice.

        Raises:
            SpoutHangs: the spout does not return from a call, so that nobody can end it.
        """
        self._stopping.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(_JOIN_SECONDS)
            until = monotonic() + _JOIN_SECONDS
            while self._thread.is_alive():
                if self._tag:
                    cancel(self._spark, self._tag)
                elif monotonic() >= until:
                    raise SpoutHangs(
                        f"spout {self._context.component!r} has not returned from a call for {_JOIN_SECONDS:g} s: "
                        "expected calls that do not block, in which it emits nothing when there is nothing"
                    )
                self._thread.join(min(1.0, _JOIN_SECONDS))

    # The spout's own thread

    def _run(self) -> None:
        try:
            rest = _SHORTEST_REST
            while not self._stopping.is_set():
                gathered = self._gather()
                if gathered:
                    self._run_batch(gathered)
                    rest = _SHORTEST_REST
                    continue
                self._idle_since = monotonic()
                if self._is_tick_due:
                    self._run_batch([])
                else:
                    self._stopping.wait(rest)
                    rest = min(_LONGEST_REST, 2 * rest)
            self._spout.deactivate()
        except BaseException as error:  # noqa: BLE001 - whatever ended it must reach the user
            if not isinstance(error, KinesisSpoutError):
                error.add_note(f"raised by the spout {self._context.component!r}")
            self._error = error
        finally:
            self._close()
            self._ended.set()

    def _close(self) -> None:
        try:
            self._spout.close()
        except BaseException as error:  # noqa: BLE001 - as above, unless there is a reason already
            self._error = self._error or error

    def _gather(self) -> list[tuple[Sequence[Any], Any, str]]:
        """Ask for tuples until there are none, or as many as may be out, or the time is over.

        What one call emits beyond as many as may be out waits.
        """
        gathered, until = self._collector.gathered, self._clock() + _GATHER_SECONDS
        while len(gathered) < self._max_pending and not self._stopping.is_set():
            before = len(gathered)
            self._spout.next_tuple()
            if len(gathered) == before or self._clock() >= until:
                break
        self._collector.gathered = gathered[self._max_pending :]
        return gathered[: self._max_pending]

    @property
    def _is_tick_due(self) -> bool:
        due_at = self._ticks.due_at
        return due_at is not None and due_at <= monotonic()

    def _run_batch(self, gathered: list[tuple[Sequence[Any], Any, str]]) -> None:
        """Run tuples, and tell of each how it ended; without tuples it is for the ticks alone."""
        began, number = monotonic(), self._batches
        if gathered:
            self._idle_since = None
        self._counted.delivered += len(gathered)
        ends = self._run_job(gathered)
        self._count(gathered, ends, monotonic() - began)
        for at, (_, message_id, _) in enumerate(gathered):
            if message_id is None:
                continue
            end = ends.get(at)
            if end is None:
                self._counted.acked += 1
                self._spout.ack(message_id)
            elif end.ending is Ending.FAILED:
                self._spout.fail(message_id, end.reason)
            else:
                self._counted.timed_out += 1
                self._spout.timed_out(message_id, end.reason)
        self._progress.append(
            {
                "id": self.id,
                "runId": self._run_id,
                "name": self._name,
                "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "batchId": number,
                "numInputRows": len(gathered),
                "durationMs": {"triggerExecution": round(1000 * (monotonic() - began))},
                "totals": {
                    "delivered": self._counted.delivered,
                    "acked": self._counted.acked,
                    "timedOut": self._counted.timed_out,
                },
            }
        )

    def _count(
        self, gathered: list[tuple[Sequence[Any], Any, str]], ends: dict[int, TreeEnd], seconds: float
    ) -> None:
        tracked = {at for at, (_, message_id, _) in enumerate(gathered) if message_id is not None}
        ended = [end for at, end in ends.items() if at in tracked]
        timed_out = sum(end.failure.timed_out for end in ended)
        acked, failed = len(tracked) - len(ended), len(ended) - timed_out
        self._jobs.add_trees(acked=acked, failed=failed, timed_out=timed_out, seconds=seconds)

    def _run_job(self, gathered: list[tuple[Sequence[Any], Any, str]]) -> dict[int, TreeEnd]:
        """Run tuples as one job, with the ticks that are due."""
        tag = f"{self._tags}-{self._batches}"
        self._batches += 1
        now = monotonic()
        self._ticks.advance(now, now)
        ticks = self._ticks.ticks(tag)
        given = [
            GivenTuple(at, values, stream, message_id is not None)
            for at, (values, message_id, stream) in enumerate(gathered)
        ]
        tasks = max(1, min(len(given), self._spark.defaultParallelism))
        unfit: dict[int, Exception] = {}
        packs = [packed_share(given[at::tasks], unfit) for at in range(tasks)]
        ends = {at: self._collector.refused(given[at], unfit[at]) for at in sorted(unfit)}
        self._tag = tag
        first = FirstStageOfTuples(shipped=self._jobs.shipped, ticks=ticks)
        guard = JobGuard(self._spark, tag, self._job_timeout)
        try:
            with guard:
                found = self._jobs.run(tag, packs, first, ticks=ticks)
        except HandlerKilledWorker as error:
            # Nobody knows which tuple is to blame: the spout decides what comes again.
            _log.warning("micro-batch %s died: %s", tag, error)
            return dict.fromkeys(range(len(given)), self._died(error, guard)) | ends
        finally:
            self._tag = ""
        for block in found:
            if isinstance(block, EndedTuples):
                ends.update(block.ends)
        return ends

    def _died(self, error: HandlerKilledWorker, guard: JobGuard) -> TreeEnd:
        if guard.has_cancelled:
            why = f"the micro-batch's job had not ended after {self._job_timeout:g} s, and was cancelled"
        elif self._stopping.is_set():
            why = "the topology was stopped before the micro-batch had ended"
        elif "cancel" in str(error):
            why = "somebody cancelled the micro-batch's job on Spark"
        else:
            return TreeEnd(ending=Ending.FAILED, component="", failure=failure_of(error))
        return TreeEnd.after_time_out(failure_saying(f"timed out: {why}"))
