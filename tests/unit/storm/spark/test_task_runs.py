"""Whether it is noticed that tasks of one job have read different runs of a task."""

from collections.abc import Sequence

import pytest

from kinesis_spout.storm import TopologyBuilder
from kinesis_spout.storm.running.blocks import Block, StageReport
from kinesis_spout.storm.running.program import Program
from kinesis_spout.storm.spark.stages import RunMark, SeenRuns, TaskRun, contradict
from tests.support.storm.components import Sentences, Split

PARTITIONS = 2


@pytest.fixture(scope="module")
def program() -> Program:
    builder = TopologyBuilder()
    builder.set_spout("sentences", Sentences())
    builder.set_bolt("split", Split(), PARTITIONS).fields_grouping("sentences", ["sentence"])
    topology = builder.build("words", partitions=PARTITIONS, ackers=3)
    return topology._programs(PARTITIONS)["sentences"]


def sent(program: Program, task: TaskRun) -> list[list[Block]]:
    """Give what a task sends, by partition of the next exchange of ackers."""
    told = list(task.marks(program))
    return [[block for partition, block in told if partition == each] for each in range(program.ackers)]


def read(task: TaskRun, blocks: Sequence[Block]) -> list[Block]:
    return [block for _, block in task.without_marks([(0, block) for block in blocks])]


def test_every_task_after_the_next_exchange_gets_the_mark_of_a_run(program: Program) -> None:
    marks = [[type(block) for block in blocks] for blocks in sent(program, TaskRun(0, 0))]
    assert marks == [[RunMark]] * 3


def test_what_only_a_failure_needs_has_the_mark_of_a_run_as_well(program: Program) -> None:
    assert sorted(partition for partition, _ in TaskRun(0, 0).marks(program)) == [-3, -2, -1, 0, 1, 2]


def test_two_runs_of_a_task_leave_different_marks(program: Program) -> None:
    [first, *_], [again, *_] = sent(program, TaskRun(0, 0)), sent(program, TaskRun(0, 0))
    assert first != again


def test_marks_are_taken_out_and_everything_else_is_passed_on(program: Program) -> None:
    other = StageReport()
    task = TaskRun(1, 0)
    assert read(task, [*sent(program, TaskRun(0, 0))[0], other]) == [other]
    assert [seen for seen, _ in task.seen.runs] == [(0, 0)]


def test_tasks_that_have_read_the_same_runs_do_not_contradict(program: Program) -> None:
    firsts = [sent(program, TaskRun(0, partition)) for partition in range(2)]
    laters = [TaskRun(1, partition) for partition in range(2)]
    for partition, later in enumerate(laters):
        read(later, [block for first in firsts for block in first[partition]])
    assert not contradict(later.seen for later in laters)


def test_tasks_that_have_read_different_runs_of_a_task_contradict(program: Program) -> None:
    before, again = sent(program, TaskRun(0, 0)), sent(program, TaskRun(0, 0))
    laters = [TaskRun(1, 0), TaskRun(1, 1)]
    read(laters[0], before[0])
    read(laters[1], again[1])
    assert contradict(later.seen for later in laters)


def test_a_task_that_has_read_two_runs_of_a_task_contradicts_itself(program: Program) -> None:
    later = TaskRun(1, 0)
    read(later, [*sent(program, TaskRun(0, 0))[0], *sent(program, TaskRun(0, 0))[0]])
    assert contradict([later.seen])


def test_what_a_task_has_seen_goes_to_the_driver_with_what_it_sends(program: Program) -> None:
    later = TaskRun(1, 0)
    read(later, sent(program, TaskRun(0, 1))[0])
    [seen] = [block for blocks in sent(program, later) for block in blocks if isinstance(block, SeenRuns)]
    assert seen == later.seen


def test_a_task_of_the_first_stage_has_nothing_to_tell_the_driver(program: Program) -> None:
    assert not any(isinstance(block, SeenRuns) for blocks in sent(program, TaskRun(0, 0)) for block in blocks)
