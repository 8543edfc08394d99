"""The first stage over tuples that a spout on the driver has emitted: they travel inside the job."""

import pickle
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark import cloudpickle

from kinesis_spout.model.handler import failure_of
from kinesis_spout.processes.worker_log import print_log_lines
from kinesis_spout.processes.worker_memory import set_aside_imports
from kinesis_spout.storm.acking import TreeEnd
from kinesis_spout.storm.components.tuples import packed, why_not
from kinesis_spout.storm.running.blocks import Keyed
from kinesis_spout.storm.running.clocks import NO_TICKS, Ticks
from kinesis_spout.storm.running.stage_run import StageRun
from kinesis_spout.storm.running.trees import new_root, open_trees
from kinesis_spout.storm.spark.tasks.kept_runs import ShippedProgram
from kinesis_spout.storm.spark.tasks.stages import EndedTuples, TaskRun, partition_here


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
                    yield from open_trees(numbers, program.ackers, partition)
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
        root = new_root() if given.is_tracked and run.program.ackers else 0
        try:
            if run.emit_root(given.values, root, given.stream):
                numbers[root] = given.number
        except BaseException as error:  # noqa: BLE001 - whatever a grouping raises fails its tuple
            run.spout.report_error(error)
            refused[given.number] = TreeEnd(component=run.program.plan.spout, failure=failure_of(error))
    return numbers, refused
