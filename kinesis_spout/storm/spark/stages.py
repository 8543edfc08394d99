"""Functions that Spark runs: the first stage over what a spout has, later ones over blocks, ackers if asked for.

A ``KinesisSpout`` has slices, which the first stage reads. A spout of the user's own has emitted tuples on the
driver: they travel inside the job.

**Tasks that Spark runs again.** Spark makes a stage's output again when the machine that kept it is lost. For
most programs that is the same output; a topology's is not: a second time a shard gives other records, and
every tuple another edge. Tasks that had read the first output and tasks that read the second would not fit
together. So each run of a task adds a mark to all that it sends, for every task after it; the driver compares
the marks they have seen at the end of the job.
"""

import pickle
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pyspark import TaskContext, cloudpickle

from kinesis_spout.model.errors import StateError
from kinesis_spout.processes.executor_python import set_aside_imports
from kinesis_spout.processes.worker_log import print_log_lines
from kinesis_spout.spark.pickled_handler import PickledHandler
from kinesis_spout.spark.tasks.delivery import DeliverySettings, SliceDelivery
from kinesis_spout.spark.tasks.task import TaskSettings, run_slices
from kinesis_spout.spark.tasks.work import WorkSlice
from kinesis_spout.storm.components.tuples import packed, why_not
from kinesis_spout.storm.running.acking import TreeEnd
from kinesis_spout.storm.running.blocks import Block, ForDriver, GroupBlock, Keyed, RecordBlock
from kinesis_spout.storm.running.clocks import NO_TICKS, BatchTicks
from kinesis_spout.storm.running.program import Program
from kinesis_spout.storm.running.stage_run import StageRun
from kinesis_spout.storm.running.trees import acker_decides, root_of
from kinesis_spout.storm.spark.kept_runs import ShippedProgram
from kinesis_spout.storm.spark.tree_delivery import SliceBlock, ToValues, TreeDelivery, failed_trees
from kinesis_spout.storm.state.key_values import UnfitValue
from kinesis_spout.storm.state.manifest import StateManifest, StateUpdate
from kinesis_spout.storm.state.partition import StateParts
from shard_state import SlicePlan

TaskId = tuple[int, int]

_LAST: Final = -1
_MOST_SLICES: Final = (1 << 20) + 1
"""The most slices of one task; tells those of different tasks apart. It is odd, so that ackers take turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateReport(ForDriver):
    """The keyed state of one task after a micro-batch."""

    updates: Sequence[StateUpdate] = ()
    is_fit: bool = True
    """True if all that bolts left in it can be kept; otherwise the job's changes must not count."""
    error: StateError | None = None
    """Why it could not be loaded or written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMark(ForDriver):
    task: TaskId
    run: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRuns(ForDriver):
    runs: frozenset[tuple[TaskId, str]]
    """One for each task, or several that do not fit together."""


class TaskRun:
    """One run of one task. Mutable."""

    def __init__(self, stage: int, partition: int) -> None:
        self._task = (stage, partition)
        self._run = secrets.token_hex(8)
        self._seen: set[tuple[TaskId, str]] = set()

    @property
    def seen(self) -> SeenRuns:
        return SeenRuns(runs=frozenset(self._seen))

    def without_marks(self, blocks: Iterable[Keyed]) -> Iterator[Keyed]:
        for partition, block in blocks:
            if isinstance(block, RunMark):
                self._seen.add((block.task, block.run))
            else:
                yield partition, block

    def marks(self, program: Program) -> Iterator[Keyed]:
        """A mark for every task after the next exchange, and for the driver the marks this run has seen."""
        mark = RunMark(task=self._task, run=self._run)
        exchanges = program.plan.exchanges + (program.ackers > 0)
        if program.plan.exchanges and self._task[0] < exchanges:
            for partition in range(max(program.partitions, program.ackers)):
                yield partition, mark
                yield ~partition, mark
        if self._seen:
            yield 0, self.seen


def contradict(seen: Iterable[SeenRuns]) -> bool:
    runs = frozenset[tuple[TaskId, str]]().union(*(each.runs for each in seen))
    return len({task for task, _ in runs}) < len(runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstStage:
    """Reads the slices of a task, and runs their records through the first stage. Picklable."""

    shipped: ShippedProgram
    settings: TaskSettings
    to_values: PickledHandler[ToValues]
    ticks: BatchTicks = NO_TICKS
    state: StateManifest | None = None
    """The state that bolts begin with, if they are in this stage, as all are in a careful run."""

    def __call__(self, packs: Iterable[Sequence[WorkSlice]]) -> Iterator[Keyed]:
        print_log_lines()
        try:
            for pack in packs:
                yield from self._run(pack, partition_here())
        except StateError as error:
            yield 0, StateReport(error=error)

    def _run(self, pack: Sequence[WorkSlice], partition: int) -> Iterator[Keyed]:
        with self.shipped.stage(0, partition) as (run, parts):
            program = run.program
            deliveries: dict[int, TreeDelivery] = {}
            to_values = self.to_values.load()
            batches = {
                (work.plan.shard_id, work.plan.kind): partition * _MOST_SLICES + at
                for at, work in enumerate(pack)
            }

            def deliver(plan: SlicePlan, rules: DeliverySettings) -> SliceDelivery:
                batch = batches[plan.shard_id, plan.kind]
                deliveries[batch] = TreeDelivery(plan, rules, run=run, to_values=to_values, batch=batch)
                return deliveries[batch]

            run.begin(None if self.state is None else parts.begin(self.state), self.ticks)
            for result in run_slices(pack, self.settings, deliver):
                batch = batches[result.plan.shard_id, result.plan.kind]
                expired_at = tuple(deliveries[batch].expired_at)
                yield batch, SliceBlock(batch=batch, result=result, expired_at=expired_at)
                yield from run.outbox.take()
            run.finish()
            yield from run.outbox.take()
            for batch, delivery in deliveries.items():
                if program.plan.exchanges:
                    left: Block | None = delivery.records_left()
                    to = ~batch
                else:
                    left, to = delivery.failed_here(), batch
                if left is not None:
                    yield to, left
            if self.state is not None:
                yield 0, _state_report(parts)
            yield from TaskRun(0, partition).marks(program)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterStage:
    """Runs a stage over what an exchange has brought. Picklable."""

    shipped: ShippedProgram
    stage: int
    state: StateManifest | None = None
    ticks: BatchTicks = NO_TICKS

    def __call__(self, blocks: Iterable[Keyed]) -> Iterator[Keyed]:
        print_log_lines()
        task = TaskRun(self.stage, partition_here())
        try:
            with self.shipped.stage(self.stage, partition_here()) as (run, parts):
                states = None if self.state is None else parts.begin(self.state)
                yield from run.run(task.without_marks(blocks), states, self.ticks)
                if self.state is not None:
                    yield 0, _state_report(parts)
                yield from task.marks(run.program)
        except StateError as error:
            yield 0, StateReport(error=error)
        set_aside_imports()


def _read_last(
    blocks: Iterable[Keyed], read: Callable[[Iterable[Block]], Iterator[Block]]
) -> Iterator[Block]:
    """Read what the last exchange has brought, for the driver."""
    task = TaskRun(_LAST, partition_here())
    yield from read(block for _, block in task.without_marks(blocks))
    yield task.seen
    set_aside_imports()


def run_acker(blocks: Iterable[Keyed]) -> Iterator[Keyed]:
    """Decide the trees of one acker; everything else is passed on to the driver."""
    return ((0, block) for block in _read_last(blocks, acker_decides))


@dataclass(frozen=True, slots=True, kw_only=True)
class FindFailed:
    """Finds the records of trees that failed, where the first stage has left those of all trees. Picklable."""

    ends: Mapping[int, Mapping[int, TreeEnd]]
    """By batch and number."""

    def __call__(self, blocks: Iterable[Keyed]) -> Iterator[Block]:
        return _read_last(blocks, self._failed)

    def _failed(self, blocks: Iterable[Block]) -> Iterator[Block]:
        for block in blocks:
            if isinstance(block, RecordBlock) and block.batch in self.ends:
                yield failed_trees(block, self.ends[block.batch])


def find_groups(blocks: Iterable[Keyed]) -> Iterator[Block]:
    """Find which trees are in which groups, where the stages have left that. As ``FindFailed``."""
    return _read_last(blocks, lambda found: (block for block in found if isinstance(block, GroupBlock)))


def blocks_of(keyed: Iterable[Keyed]) -> Iterator[Block]:
    return (block for _, block in keyed)


def partition_here() -> int:
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()


def _state_report(parts: StateParts) -> StateReport:
    try:
        return StateReport(updates=list(parts.end_batch()))
    except UnfitValue:
        return StateReport(is_fit=False)


class GivenTuple(NamedTuple):
    number: int
    values: Sequence[Any]
    stream: str
    is_tracked: bool


def packed_share(share: Sequence[GivenTuple], unfit: MutableMapping[int, Exception]) -> bytes:
    """Pack the tuples of one task; those that cannot travel go into ``unfit``, with the reason, by number."""
    rows = [
        tuple(given) for given in share
    ]  # Plain ones name no class, which would cost a look at all of them.
    try:
        return packed(rows, cloudpickle.dumps)
    except Exception:  # noqa: BLE001 - a value's own code may raise anything; which one, is found out now
        for given, row in zip(share, rows, strict=True):
            error = why_not(row, cloudpickle.dumps)
            if error is not None:
                unfit[given.number] = error
        return packed([row for row in rows if row[0] not in unfit], cloudpickle.dumps)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstStageOfTuples:
    """Runs a task's share of the tuples, which ``packed_share`` gave. Picklable."""

    shipped: ShippedProgram
    ticks: BatchTicks = NO_TICKS

    def __call__(self, packs: Iterable[bytes]) -> Iterator[Keyed]:
        partition = partition_here()
        print_log_lines()
        with self.shipped.stage(0, partition) as (run, _):
            for pack in packs:
                run.begin(ticks=self.ticks)
                # The bytes are our own: the driver has packed them.
                for row in pickle.loads(pack):  # noqa: S301
                    _emit(run, GivenTuple(*row))
                run.finish()
                yield from run.outbox.take()
            yield from TaskRun(0, partition).marks(run.program)
        set_aside_imports()


def _emit(run: StageRun, given: GivenTuple) -> None:
    """Emit a tuple of a spout, as the first of its batch. An error of a grouping fails it alone."""
    root = root_of(given.number, 0) if given.is_tracked and run.program.is_tracked else 0
    try:
        run.emit_root(given.values, root, given.stream)
    except BaseException as error:  # noqa: BLE001 - whatever a grouping raises fails its tuple
        run.spout.raised(root, error)
