"""What Spark runs: the first stage over what a spout has, later ones over blocks, ackers if they are asked for.

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
from kinesis_spout.model.handler import failure_of
from kinesis_spout.processes.executor_python import set_aside_imports
from kinesis_spout.processes.worker_log import print_log_lines
from kinesis_spout.spark.pickled_handler import PickledHandler
from kinesis_spout.spark.tasks.delivery import DeliverySettings, SliceDelivery
from kinesis_spout.spark.tasks.task import TaskSettings, run_slices
from kinesis_spout.spark.tasks.work import WorkSlice
from kinesis_spout.storm.components.tuples import packed, why_not
from kinesis_spout.storm.running.acking import TreeEnd
from kinesis_spout.storm.running.blocks import (
    Block,
    ChangesDoNotCount,
    ForDriver,
    GroupBlock,
    Keyed,
    OpenTrees,
)
from kinesis_spout.storm.running.clocks import NO_TICKS, Ticks
from kinesis_spout.storm.running.program import Program
from kinesis_spout.storm.running.stage_run import StageRun
from kinesis_spout.storm.running.trees import Unfinished, decide, open_trees, root_of
from kinesis_spout.storm.spark.kept_runs import ShippedProgram
from kinesis_spout.storm.spark.tree_delivery import (
    FailedTrees,
    SliceBlock,
    ToValues,
    TreeDelivery,
    failed_trees,
)
from kinesis_spout.storm.state.key_values import UnfitValue
from kinesis_spout.storm.state.manifest import StateManifest, StateUpdate
from kinesis_spout.storm.state.partition import StateParts
from shard_state import SlicePlan

TaskId = tuple[int, int]

_LAST: Final = -1
_MOST_SLICES: Final = (1 << 20) + 1
"""Of one task; tells the slices of different tasks apart. It is odd, so that acker by acker they take turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTuples(ForDriver):
    ends: Mapping[int, TreeEnd]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateBlock(ForDriver):
    update: StateUpdate


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFailed(ForDriver):
    error: StateError


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMark(ForDriver):
    task: TaskId
    run: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRuns(ForDriver):
    runs: frozenset[tuple[TaskId, str]]
    """Of each task one, or several that do not fit together."""


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
        if program.ackers or self._task[0] < program.plan.exchanges:
            for partition in range(max(program.partitions, program.ackers)):
                yield partition, mark
                if not program.ackers:
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
    ticks: Ticks = NO_TICKS
    state: StateManifest | None = None
    """What the bolts with state begin with, if they are in this stage, as all are in a careful run."""

    def __call__(self, packs: Iterable[Sequence[WorkSlice]]) -> Iterator[Keyed]:
        partition = partition_here()
        print_log_lines()
        for pack in packs:
            yield from _or_state_failed(self._run(pack, partition))

    def _run(self, pack: Sequence[WorkSlice], partition: int) -> Iterator[Keyed]:
        with self.shipped.stage(0, partition) as (run, parts):
            program = run.program
            exchanges = program.plan.exchanges > 0
            deliveries: dict[int, TreeDelivery] = {}
            to_values = self.to_values.load()
            number = {(work.plan.shard_id, work.plan.kind): at for at, work in enumerate(pack)}

            def deliver(plan: SlicePlan, rules: DeliverySettings) -> SliceDelivery:
                batch = partition * _MOST_SLICES + number[plan.shard_id, plan.kind]
                delivery = TreeDelivery(plan, rules, run=run, to_values=to_values, batch=batch)
                deliveries[batch] = delivery
                return delivery

            run.begin(None if self.state is None else parts.begin(self.state), self.ticks)
            for result in run_slices(pack, self.settings, deliver):
                batch = partition * _MOST_SLICES + number[result.plan.shard_id, result.plan.kind]
                expired_at = tuple(deliveries[batch].expired_at)
                yield batch, SliceBlock(batch=batch, result=result, expired_at=expired_at)
                yield from run.outbox.take()
            run.finish()
            yield from run.outbox.take()
            for batch, delivery in deliveries.items():
                if exchanges:
                    for opened in delivery.open_trees():
                        yield opened.acker if program.ackers else ~batch, opened
                elif failed := tuple(delivery.failed_here()):
                    yield batch, FailedTrees(batch=batch, failed=failed)
            if self.state is not None:
                yield from _updates(parts)
            if exchanges:
                yield from TaskRun(0, partition).marks(program)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterStage:
    """Runs a stage over what an exchange has brought. Picklable."""

    shipped: ShippedProgram
    stage: int
    state: StateManifest | None = None
    ticks: Ticks = NO_TICKS

    def __call__(self, blocks: Iterable[Keyed]) -> Iterator[Keyed]:
        print_log_lines()
        yield from _or_state_failed(self._run(blocks, partition_here()))
        set_aside_imports()

    def _run(self, blocks: Iterable[Keyed], partition: int) -> Iterator[Keyed]:
        task = TaskRun(self.stage, partition)
        blocks = task.without_marks(blocks)
        with self.shipped.stage(self.stage, partition) as (run, parts):
            if self.state is None:
                yield from run.run(blocks, ticks=self.ticks)
            else:
                yield from run.run(blocks, parts.begin(self.state), self.ticks)
                yield from _updates(parts)
            yield from task.marks(run.program)


def _read_last(
    blocks: Iterable[Keyed], read: Callable[[Iterable[Block]], Iterator[Block]]
) -> Iterator[Block]:
    """Read what the last exchange has brought, for the driver."""
    task = TaskRun(_LAST, partition_here())
    yield from read(block for _, block in task.without_marks(blocks))
    yield task.seen
    set_aside_imports()


def run_acker(blocks: Iterable[Keyed]) -> Iterator[Block]:
    """Decide the trees of one acker; everything else is passed on to the driver."""
    return _read_last(blocks, _decided)


def _decided(blocks: Iterable[Block]) -> Iterator[Block]:
    for found in decide(blocks):
        if not isinstance(found, Unfinished):
            yield found
        elif found.opened.tuples:
            yield failed_trees(found)
        else:
            yield EndedTuples(ends=found.ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class FindFailed:
    """Finds the records of trees that failed, where the first stage has left those of all trees. Picklable."""

    ends: Mapping[int, Mapping[int, TreeEnd]]
    """By batch and number."""

    def __call__(self, blocks: Iterable[Keyed]) -> Iterator[Block]:
        return _read_last(blocks, self._failed)

    def _failed(self, blocks: Iterable[Block]) -> Iterator[Block]:
        for block in blocks:
            if isinstance(block, OpenTrees) and block.batch in self.ends:
                yield failed_trees(Unfinished(batch=block.batch, ends=self.ends[block.batch], opened=block))


def find_groups(blocks: Iterable[Keyed]) -> Iterator[Block]:
    """Find which trees are in which groups, where the stages have left that. As ``FindFailed``."""
    return _read_last(blocks, lambda found: (block for block in found if isinstance(block, GroupBlock)))


def blocks_of(keyed: Iterable[Keyed]) -> Iterator[Block]:
    return (block for _, block in keyed)


def partition_here() -> int:
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()


def _or_state_failed(run: Iterator[Keyed]) -> Iterator[Keyed]:
    """Report a failure of the state as a value: an exception of a task reaches the driver as text."""
    try:
        yield from run
    except StateError as error:
        yield 0, StateFailed(error=error)


def _updates(parts: StateParts) -> Iterator[Keyed]:
    try:
        yield from ((0, UpdateBlock(update=update)) for update in parts.end_batch())
    except UnfitValue:
        yield 0, ChangesDoNotCount()


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
    ticks: Ticks = NO_TICKS

    def __call__(self, packs: Iterable[bytes]) -> Iterator[Keyed]:
        partition = partition_here()
        print_log_lines()
        with self.shipped.stage(0, partition) as (run, _):
            program = run.program
            for pack in packs:
                run.begin(ticks=self.ticks)
                # The bytes are our own: the driver has packed them.
                share = [GivenTuple(*row) for row in pickle.loads(pack)]  # noqa: S301
                numbers, ends = emitted(run, share)
                run.finish()
                yield from run.outbox.take()
                if program.plan.exchanges:
                    yield from open_trees(numbers, program.ackers, partition)  # none without ackers
                else:
                    ends |= run.trees.all_decided(numbers)
                yield partition, EndedTuples(ends=ends)
            if program.plan.exchanges:
                yield from TaskRun(0, partition).marks(program)
        set_aside_imports()


def emitted(run: StageRun, pack: Sequence[GivenTuple]) -> tuple[dict[int, int], dict[int, TreeEnd]]:
    """Emit tuples of a spout.

    Gives the numbers of those whose trees are open, by root; and the ends of those that no task got, because
    a grouping raised.
    """
    numbers: dict[int, int] = {}
    refused: dict[int, TreeEnd] = {}
    for given in pack:
        root = root_of(given.number, 0) if given.is_tracked and run.program.is_tracked else 0
        try:
            if run.emit_root(given.values, root, given.stream):
                numbers[root] = given.number
        except BaseException as error:  # noqa: BLE001 - whatever a grouping raises fails its tuple
            run.spout.report_error(error)
            refused[given.number] = TreeEnd(component=run.program.plan.spout, failure=failure_of(error))
    return numbers, refused
