"""What Spark runs: the first stage over the slices of a spout, later ones over blocks, ackers in the end."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark import TaskContext

from kinesis_spout.model.errors import StateError
from kinesis_spout.processes.worker_log import print_log_lines
from kinesis_spout.processes.worker_memory import set_aside_imports
from kinesis_spout.spark.pickled_handler import PickledHandler
from kinesis_spout.spark.tasks.delivery import DeliverySettings, SliceDelivery
from kinesis_spout.spark.tasks.task import TaskSettings, run_slices
from kinesis_spout.spark.tasks.work import WorkSlice
from kinesis_spout.storm.acking import TreeEnd
from kinesis_spout.storm.running.blocks import Block, ChangesDoNotCount, ForDriver
from kinesis_spout.storm.running.program import Program
from kinesis_spout.storm.running.tick_clock import NO_TICKS, Ticks
from kinesis_spout.storm.running.verdicts import Unfinished, decide
from kinesis_spout.storm.spark.tasks.kept_runs import ShippedProgram
from kinesis_spout.storm.spark.tasks.state_parts import StateFailed, StateParts
from kinesis_spout.storm.spark.tasks.tree_delivery import (
    FailedTrees,
    SliceBlock,
    ToValues,
    TreeDelivery,
    failed_trees,
)
from kinesis_spout.storm.spark.tasks.witness import Witness
from kinesis_spout.storm.state import StateManifest, UnfitValue
from shard_state import SlicePlan

Keyed = tuple[int, Block]
"""What travels, with the partition that it is for, before that is taken modulo the partitions of the exchange."""

_ACKER: Final = -1
"""In place of a stage: the ackers."""
_MOST_SLICES: Final = 1 << 20
"""Of one task; tells the slices of different tasks apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTuples(ForDriver):
    """The tuples of a spout on the driver whose trees did not complete, by their numbers, on their way to it."""

    ends: Mapping[int, TreeEnd]


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstStage:
    """Reads the slices of a task, and runs their records through the first stage. Picklable."""

    shipped: ShippedProgram
    settings: TaskSettings
    to_values: PickledHandler[ToValues]
    ticks: Ticks = NO_TICKS
    state: StateManifest | None = None
    """What the bolts with state begin with, if they are in this stage, as all are when roots run one by one."""

    def __call__(self, packs: Iterable[Sequence[WorkSlice]]) -> Iterator[Keyed]:
        """Run the slices of one task."""
        partition = partition_here()
        print_log_lines()
        for pack in packs:
            yield from _or_state_failed(self._run(pack, partition))

    def _run(self, pack: Sequence[WorkSlice], partition: int) -> Iterator[Keyed]:
        with self.shipped.stage(0, partition) as (run, parts):
            program = run.program
            deliveries: list[TreeDelivery] = []
            to_values = self.to_values.load()

            number = {(work.plan.shard_id, work.plan.kind): at for at, work in enumerate(pack)}

            def deliver(plan: SlicePlan, rules: DeliverySettings) -> SliceDelivery:
                delivery = TreeDelivery(
                    plan,
                    rules,
                    emitter=run.emitter,
                    trees=run.trees,
                    to_values=to_values,
                    goes_on=program.plan.exchanges > 0,
                    ackers=program.ackers,
                    acker=(partition + number[plan.shard_id, plan.kind]) % max(1, program.ackers),
                )
                deliveries.append(delivery)
                return delivery

            run.begin(None if self.state is None else parts.begin(self.state), self.ticks)
            for result in run_slices(pack, self.settings, deliver):
                batch = partition * _MOST_SLICES + number[result.plan.shard_id, result.plan.kind]
                yield batch, SliceBlock(batch=batch, result=result)
                yield from run.outbox.take()
            run.finish()
            yield from run.outbox.take()
            for at, delivery in enumerate(deliveries):
                yield from _opened(program, delivery, partition * _MOST_SLICES + at)
            if self.state is not None:
                yield from _updates(parts)
            if program.plan.exchanges:
                yield from Witness(0, partition).told(program)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterStage:
    """Runs a stage over what an exchange has brought. Picklable."""

    shipped: ShippedProgram
    stage: int
    state: StateManifest | None = None
    """What the bolts with state begin with."""
    ticks: Ticks = NO_TICKS

    def __call__(self, blocks: Iterable[Keyed]) -> Iterator[Keyed]:
        """Run one partition."""
        print_log_lines()
        yield from _or_state_failed(self._run(blocks, partition_here()))
        set_aside_imports()

    def _run(self, blocks: Iterable[Keyed], partition: int) -> Iterator[Keyed]:
        witness = Witness(self.stage, partition)
        blocks = witness.watched(blocks)
        with self.shipped.stage(self.stage, partition) as (run, parts):
            if self.state is None:
                yield from run.run(blocks, ticks=self.ticks)
            else:
                yield from run.run(blocks, parts.begin(self.state), self.ticks)
                yield from _updates(parts)
            yield from witness.told(run.program)


def run_acker(blocks: Iterable[Keyed]) -> Iterator[Block]:
    """Decide the trees of one acker; everything else goes on to the driver."""
    witness = Witness(_ACKER, partition_here())
    for found in decide(block for _, block in witness.watched(blocks)):
        if not isinstance(found, Unfinished):
            yield found
        elif found.opened.tuples:
            yield failed_trees(found)
        else:
            yield EndedTuples(ends=found.ends)
    yield witness.seen
    set_aside_imports()


def partition_here() -> int:
    """Say which partition this task runs."""
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()


def _or_state_failed(run: Iterator[Keyed]) -> Iterator[Keyed]:
    """Tell the driver as a value that the state failed: what a task raises is text when it gets there."""
    try:
        yield from run
    except StateError as error:
        yield 0, StateFailed(error=error)


def _updates(parts: StateParts) -> Iterator[Keyed]:
    try:
        yield from ((0, update) for update in parts.end_batch())
    except UnfitValue:
        yield 0, ChangesDoNotCount()


def _opened(program: Program, delivery: TreeDelivery, batch: int) -> Iterator[Keyed]:
    if program.plan.exchanges:
        yield from ((opened.acker, opened) for opened in delivery.open_trees(batch))
        return
    failed = tuple(delivery.failed_here())
    if failed:
        yield batch, FailedTrees(batch=batch, failed=failed)
