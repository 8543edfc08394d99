"""The first stage over tuples that a spout on the driver has emitted: they travel inside the job."""

import pickle
from array import array
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from random import getrandbits
from typing import Any

from pyspark import cloudpickle

from kinesis_spout.model.handler import failure_of
from kinesis_spout.processes.worker_log import print_log_lines
from kinesis_spout.processes.worker_memory import set_aside_imports
from kinesis_spout.storm.acking import Ending, TreeEnd
from kinesis_spout.storm.pickling import packed, why_not
from kinesis_spout.storm.running.blocks import OpenTrees
from kinesis_spout.storm.running.stage.stage_run import StageRun
from kinesis_spout.storm.running.tick_clock import NO_TICKS, Ticks
from kinesis_spout.storm.running.verdicts import decide_here
from kinesis_spout.storm.spark.tasks.kept_runs import ShippedProgram
from kinesis_spout.storm.spark.tasks.stages import EndedTuples, Keyed, partition_here
from kinesis_spout.storm.spark.tasks.witness import Witness


@dataclass(frozen=True, slots=True)
class GivenTuple:
    """One tuple of a spout."""

    number: int
    """Tells it from the others of its micro-batch."""
    values: Sequence[Any]
    stream: str
    is_tracked: bool


def packed_share(share: Sequence[GivenTuple], unfit: MutableMapping[int, Exception]) -> bytes:
    """Pack the tuples of one task, but for those that cannot travel.

    Args:
        share: the tuples.
        unfit: takes why those cannot, by their numbers.
    """
    rows = [(given.number, given.values, given.stream, given.is_tracked) for given in share]
    try:
        return packed(rows, cloudpickle.dumps)
    except Exception:  # noqa: BLE001 - a value's own code may raise anything; which one, is found out now
        errors = [why_not(row, cloudpickle.dumps) for row in rows]
        unfit.update((row[0], error) for row, error in zip(rows, errors, strict=True) if error is not None)
        return packed([row for row in rows if row[0] not in unfit], cloudpickle.dumps)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstStageOfTuples:
    """Runs a task's share of the tuples, which ``packed_share`` gave. Picklable."""

    shipped: ShippedProgram
    ticks: Ticks = NO_TICKS

    def __call__(self, packs: Iterable[bytes]) -> Iterator[Keyed]:
        """Run the tuples of one task."""
        partition = partition_here()
        print_log_lines()
        with self.shipped.stage(0, partition) as (run, _):
            for pack in packs:
                run.begin(ticks=self.ticks)
                # The bytes are our own: the driver has packed them.
                share = [GivenTuple(*row) for row in pickle.loads(pack)]  # noqa: S301
                opened, refused = emitted(run, share)
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
