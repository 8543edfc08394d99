"""The first stage over tuples that a spout on the driver has emitted: they travel inside the job."""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import getrandbits
from typing import Any

from kinesis_spout.handler import failure_of
from kinesis_spout.topology.acking import Ending, TreeEnd
from kinesis_spout.topology.running.blocks import OpenTrees
from kinesis_spout.topology.running.stage.stage_run import StageRun
from kinesis_spout.topology.running.tick_clock import NO_TICKS, Ticks
from kinesis_spout.topology.running.verdicts import decide_here
from kinesis_spout.topology.spark.tasks.kept_runs import ShippedProgram
from kinesis_spout.topology.spark.tasks.stages import EndedTuples, Keyed, partition_here
from kinesis_spout.topology.spark.tasks.witness import Witness
from kinesis_spout.workers.worker_log import print_log_lines
from kinesis_spout.workers.worker_memory import set_aside_imports


@dataclass(frozen=True, slots=True)
class GivenTuple:
    """One tuple of a spout."""

    number: int
    """Tells it from the others of its micro-batch."""
    values: Sequence[Any]
    stream: str
    is_tracked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstStageOfTuples:
    """Runs a task's share of the tuples. Picklable."""

    shipped: ShippedProgram
    ticks: Ticks = NO_TICKS

    def __call__(self, packs: Iterable[Sequence[GivenTuple]]) -> Iterator[Keyed]:
        """Run the tuples of one task."""
        partition = partition_here()
        print_log_lines()
        with self.shipped.stage(0, partition) as (run, _):
            for pack in packs:
                run.begin(ticks=self.ticks)
                opened, refused = emitted(run, pack)
                run.finish()
                yield from run.outbox.take()
                yield partition, EndedTuples(ends=refused)
                yield from _decided(run, opened, partition)
            if run.program.plan.exchanges:
                yield from Witness(0, partition).told(run.program)
        set_aside_imports()


def emitted(run: StageRun, pack: Sequence[GivenTuple]) -> tuple[dict[int, int], dict[int, TreeEnd]]:
    """Emit tuples of a spout.

    Returns:
        The numbers of those whose trees are open, by root; and how those ended that nobody was given, because a
        grouping raised.
    """
    opened: dict[int, int] = {}
    refused: dict[int, TreeEnd] = {}
    for given in pack:
        root = (getrandbits(64) or 1) if given.is_tracked and run.program.ackers else 0
        try:
            if run.spout.emit_root(given.values, root, given.stream):
                opened[root] = given.number
        except BaseException as error:  # noqa: BLE001 - whatever a grouping raises fails its tuple
            run.spout.report_error(error)
            refused[given.number] = TreeEnd(
                ending=Ending.FAILED, component=run.program.plan.spout, failure=failure_of(error)
            )
    return opened, refused


def _decided(run: StageRun, opened: Mapping[int, int], partition: int) -> Iterator[Keyed]:
    if not run.program.plan.exchanges:
        found = {number: decide_here(run.trees, root) for root, number in opened.items()}
        yield partition, EndedTuples(ends={number: end for number, end in found.items() if end is not None})
        return
    ackers = run.program.ackers
    for acker in range(ackers):
        roots = [root for root in opened if root % ackers == acker]
        if roots:
            numbers = array("Q", (opened[root] for root in roots)).tobytes()
            yield (
                acker,
                OpenTrees(acker=acker, batch=partition, roots=array("Q", roots).tobytes(), numbers=numbers),
            )
