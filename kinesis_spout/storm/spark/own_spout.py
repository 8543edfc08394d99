"""A spout of the user's own, on the driver: asked for tuples, run as micro-batches, given the outcome of each.

One thread does it all, so that the spout is never called by two: it asks for tuples until there are none or
enough, or 50 ms are over, runs them as one job, and reports each outcome. At most ``max_spout_pending``
tuples are out at a time.
"""

import logging
import sys
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from math import inf
from time import monotonic
from traceback import walk_stack
from typing import Any, Final, NamedTuple

from py4j.protocol import Py4JError
from pyspark import SparkContext, cloudpickle
from pyspark.errors import PySparkException

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.consumer.counters import Counters
from kinesis_spout.model.errors import HandlerKilledWorker, InvalidConfig, KinesisSpoutError
from kinesis_spout.model.handler import failure_of, failure_saying, found_at
from kinesis_spout.model.unfinished_work import refuse_unfinished
from kinesis_spout.spark.driver.running_query import RunningQuery
from kinesis_spout.spark.tasks.jobs import cancel, has_begun, tags_of
from kinesis_spout.storm.components.given import TaskContext
from kinesis_spout.storm.components.spout import Spout
from kinesis_spout.storm.components.tuples import Stream, check_values, names_of, why_unfit
from kinesis_spout.storm.multilang.protocol import DEFAULT_STREAM
from kinesis_spout.storm.running.acking import TreeEnd
from kinesis_spout.storm.running.clocks import TickClock
from kinesis_spout.storm.running.collecting import ReportedErrors
from kinesis_spout.storm.running.counts import ComponentCounts
from kinesis_spout.storm.running.program import Program
from kinesis_spout.storm.spark.job import TopologyJobs
from kinesis_spout.storm.spark.stages import FirstStageOfTuples, GivenTuple, packed_share

_SHORTEST_REST: Final = 0.005
_LONGEST_REST: Final = 0.2
"""Between two rounds in which the spout had nothing."""
_GATHER_SECONDS: Final = 0.05
"""A spout that makes its tuples slowly, or waits for each, is asked no longer for those of one micro-batch."""
_JOIN_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.5
"""The time between two looks whether a call of the spout hangs, or a job takes too long."""
_RECENT_PROGRESS: Final = 100

_log: Final = logging.getLogger(__name__)


class SpoutHangs(KinesisSpoutError):  # noqa: N818 - what happened
    """A spout of the user's own does not return from a call. Says which call, and where it is."""


class Gathered(NamedTuple):
    values: Sequence[Any]
    message_id: Any
    stream: str


class GatheringCollector:
    def __init__(self, name: str, streams: dict[str, Stream]) -> None:
        self._name = name
        self._streams = streams
        self.gathered: list[Gathered] = []
        self.given_up: SpoutHangs | None = None
        """The error for a call that goes on emitting although the query has ended."""
        self.counts = ComponentCounts()
        self._errors = ReportedErrors(f"spout {name}", self.counts, monotonic)

    def emit(self, values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT_STREAM) -> None:
        if self.given_up is not None:
            raise self.given_up
        declared = self._streams.get(stream)
        where = f"spout {self._name!r}"
        if declared is None or declared.direct:
            known = names_of(name for name, each in self._streams.items() if not each.direct)
            raise InvalidConfig(f"{where}: expected a stream that it declares ({known}), got {stream!r}")
        check_values(f"{where}, stream {stream!r}", values, len(declared.fields))
        kept = values if isinstance(values, tuple) else list(values)  # The spout can use its list again.
        self.gathered.append(Gathered(kept, message_id, stream))

    def report_error(self, error: BaseException) -> None:
        self._errors.report(error)

    def refused(self, given: GivenTuple, error: Exception) -> TreeEnd:
        fields = self._streams[given.stream].fields
        reason = why_unfit(given.stream, fields, given.values, error, cloudpickle.dumps)
        self.counts.emitted += 1
        if given.is_tracked:
            self._errors.count(reason)
        else:
            self.report_error(TypeError(reason))
        return TreeEnd(component=self._name, failure=failure_saying(reason))

    def report_metric(self, name: str, value: Any) -> None:
        self.counts.report(name, value)


class OwnSpoutQuery(RunningQuery):
    """A running spout of the user's own. Any thread can call the handle's methods."""

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
        self._jobs = TopologyJobs(spark, program, None, has_records=False)
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
        """The tag of the job that runs; "" if none does."""
        self._cancelled_tag = ""
        self._error: BaseException | None = None
        self._under_way: tuple[str, float] | None = None
        """The call of the spout that is under way, and since when."""
        self._counted = Counters()
        """Nothing is given up: the spout decides what comes again."""
        self._batches = 0
        self._progress: deque[dict[str, Any]] = deque(maxlen=_RECENT_PROGRESS)
        self._thread = threading.Thread(target=self._run, name=f"kinesis-spout-{name}", daemon=True)
        self._watch = threading.Thread(
            target=self._look_after, name=f"kinesis-spout-{name}-watch", daemon=True
        )

    def start(self) -> None:
        try:
            self._spout.open(self._program.conf_of(self._context.component), self._context, self._collector)
            self._spout.activate()
        except BaseException:
            self._spout.close()
            raise
        self._thread.start()
        self._watch.start()

    @property
    def id(self) -> str:
        return str(
            uuid.uuid5(
                uuid.NAMESPACE_URL, f"kinesis-spout:{self._program.topology}/{self._context.component}"
            )
        )

    @property
    def isActive(self) -> bool:  # noqa: N802
        return not self._ended.is_set()

    @property
    def is_done(self) -> bool:
        """False: a spout of your own has no end."""
        return False

    def _status_while_active(self) -> dict[str, Any]:
        message = "Running a micro-batch" if self._tag else str(self._hangs() or "Waiting for tuples")
        return {"message": message, "isDataAvailable": False, "isTriggerActive": bool(self._tag)}

    def _consumers(self) -> Mapping[str, Consumer]:
        return {}

    def _counted_before(self) -> Iterable[Counters]:
        return (self._counted,)

    @property
    def counts(self) -> dict[str, ComponentCounts]:
        counts = self._jobs.counts
        counts.setdefault(self._context.component, ComponentCounts()).add(self._collector.counts)
        return counts

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802
        """The progress of the newest micro-batches, oldest first, at most 100."""
        return list(self._progress)

    def exception(self) -> BaseException | None:
        return self._error

    def _await_end(self, timeout: float | None) -> bool:
        return self._ended.wait(timeout)

    def processAllAvailable(self) -> None:  # noqa: N802
        """Wait until, for a moment, the spout has nothing to emit and nothing of it is under way."""
        since = monotonic()
        while not self._ended.wait(_SHORTEST_REST):
            idle_since = self._idle_since
            if idle_since is not None and idle_since > since:
                return
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """End: what runs can end, then the spout is deactivated and closed. Can be called twice.

        Raises:
            SpoutHangs: a call of the spout takes longer than its ``timeout_seconds``. The query has ended, and
                this is its error; should the call return, the spout is closed.
        """
        self._stopping.set()
        if threading.current_thread() is self._thread:
            return
        until = monotonic() + _JOIN_SECONDS
        while self._thread.is_alive():
            hangs = self._hangs()
            if hangs is not None:
                self._error = self._collector.given_up = hangs
                self._ended.set()
                raise hangs
            if self._tag and monotonic() >= until:
                cancel(self._spark, self._tag)
            self._thread.join(min(_LOOK_SECONDS, _JOIN_SECONDS))

    def _look_after(self) -> None:
        """Warn of each call of the spout that hangs, once; cancel jobs that take too long. Its own thread."""
        named = None
        seen_tag, begun_at = "", inf
        while not self._ended.wait(_LOOK_SECONDS):
            under_way, hangs = self._under_way, self._hangs()
            if hangs is not None and under_way is not named:
                named = under_way
                _log.warning("%s\n%s", hangs, *hangs.__notes__)
            tag, now = self._tag, self._clock()
            if tag != seen_tag:
                seen_tag, begun_at = tag, inf
            elif tag and begun_at == inf and self._has_begun(tag):
                begun_at = now
            elif now - begun_at >= self._job_timeout:
                # Again and again: a job that is about to follow another one under the tag is not met.
                self._cancelled_tag = tag
                cancel(self._spark, tag)

    def _has_begun(self, tag: str) -> bool:
        """True if a job's first task was seen. While other jobs have the cluster, no component is to blame."""
        try:
            return has_begun(self._spark, tag)
        except (Py4JError, PySparkException, OSError, AttributeError):  # AttributeError: it was stopped
            return False  # Spark is gone, which the job says.

    def _hangs(self) -> SpoutHangs | None:
        under_way, most = self._under_way, self._spout.timeout_seconds
        frame = sys._current_frames().get(self._thread.ident or 0)  # noqa: SLF001 - there is no other way to ask
        if under_way is None or frame is None or self._clock() - under_way[1] < most:
            return None
        call, emitted = under_way[0], len(self._collector.gathered)
        waiting = f"; what it has emitted meanwhile waits for that (tuples: {emitted})" if emitted else ""
        ours = OwnSpoutQuery._call.__code__
        called_by = next((each for each, _ in walk_stack(frame) if each.f_code is ours), None)
        where = found_at(frame, "it is", called_by)
        hangs = SpoutHangs(
            f"spout {self._context.component!r} has not returned from {call} for {most:g} s (timeout_seconds), "
            f"{where.kind}{waiting}: expected calls that do not block, which emit what there is, and return"
        )
        hangs.add_note(where.traceback)
        return hangs

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
            self._call(self._spout.deactivate)
        except BaseException as error:  # noqa: BLE001 - whatever ended it must reach the user
            if not isinstance(error, KinesisSpoutError):
                error.add_note(f"raised by the spout {self._context.component!r}")
            self._error = self._error or error
        finally:
            self._close()
            self._ended.set()

    def _close(self) -> None:
        try:
            self._call(self._spout.close)
        except BaseException as error:  # noqa: BLE001 - as above, unless there is a reason already
            self._error = self._error or error

    def _call(self, call: Callable[..., object], *given: Any) -> None:
        self._under_way = call.__name__, self._clock()
        try:
            returned = call(*given)
            if returned is not None:
                refuse_unfinished(returned)
        finally:
            self._under_way = None

    def _gather(self) -> list[Gathered]:
        """Ask for tuples until there are none, or ``max_spout_pending``, or the time is over.

        Tuples that one call emits beyond that wait.
        """
        gathered, until = self._collector.gathered, self._clock() + _GATHER_SECONDS
        while len(gathered) < self._max_pending and not self._stopping.is_set():
            before = len(gathered)
            self._call(self._spout.next_tuple)
            if len(gathered) == before or self._clock() >= until:
                break
        self._collector.gathered = gathered[self._max_pending :]
        return gathered[: self._max_pending]

    @property
    def _is_tick_due(self) -> bool:
        due_at = self._ticks.due_at
        return due_at is not None and due_at <= monotonic()

    def _run_batch(self, gathered: list[Gathered]) -> None:
        """Run tuples, and report how each ended; without tuples it is for the ticks alone."""
        began, number = monotonic(), self._batches
        if gathered:
            self._idle_since = None
        self._counted.delivered += len(gathered)
        ends = self._run_job(gathered)
        tracked = {at: each.message_id for at, each in enumerate(gathered) if each.message_id is not None}
        ended = [end for at, end in ends.items() if at in tracked]
        self._jobs.count_trees(
            len(tracked),
            unfinished=len(ended),
            timed_out=sum(end.timed_out for end in ended),
            seconds=monotonic() - began,
        )
        for at, message_id in tracked.items():
            end = ends.get(at)
            if end is None:
                self._counted.acked += 1
                self._call(self._spout.ack, message_id)
            elif end.timed_out:
                self._counted.timed_out += 1
                self._call(self._spout.timed_out, message_id, end.reason)
            else:
                self._call(self._spout.fail, message_id, end.reason)
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

    def _run_job(self, gathered: list[Gathered]) -> dict[int, TreeEnd]:
        tag = f"{self._tags}-{self._batches}"
        self._batches += 1
        now = monotonic()
        self._ticks.advance(now, now)
        ticks = self._ticks.ticks(tag)
        given = [
            GivenTuple(at, each.values, each.stream, each.message_id is not None)
            for at, each in enumerate(gathered)
        ]
        tasks = max(1, min(len(given), self._spark.defaultParallelism))
        unfit: dict[int, Exception] = {}
        packs = [packed_share(given[at::tasks], unfit) for at in range(tasks)]
        ends = {at: self._collector.refused(given[at], unfit[at]) for at in sorted(unfit)}
        self._tag = tag
        first = FirstStageOfTuples(shipped=self._jobs.shipped, ticks=ticks)
        try:
            found = self._jobs.run(tag, packs, first, ticks=ticks)
        except HandlerKilledWorker as error:
            # It is unknown which tuple is to blame: the spout decides what comes again.
            _log.warning("micro-batch %s died: %s", tag, error)
            return dict.fromkeys(range(len(given)), self._died(error, tag)) | ends
        finally:
            self._tag = ""
        return ends | {
            number: end for number, of_batch in found.verdict.ends.items() for end in of_batch.values()
        }

    def _died(self, error: HandlerKilledWorker, tag: str) -> TreeEnd:
        if self._cancelled_tag == tag:
            why = f"the micro-batch's job had not ended after {self._job_timeout:g} s, and was cancelled"
        elif self._stopping.is_set():
            why = "the topology was stopped before the micro-batch had ended"
        elif "cancel" in str(error):
            why = "somebody cancelled the micro-batch's job on Spark"
        else:
            return TreeEnd(component="", failure=failure_of(error))
        return TreeEnd.after_time_out(failure_saying(f"timed out: {why}"))
