"""Notices that Spark ran a task of a job again, after others had taken in what came of the first time.

Spark makes a stage's output again when the machine that kept it is lost. For most programs that is the same
output; a topology's is not: a second time a shard gives other records, and every tuple another edge. Tasks
that had read the first output and tasks that read the second would not fit together. So each run of a task
leaves a mark with all that it sends, to every task after it; whoever collects the end of the job compares
what they have seen.
"""

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kinesis_spout.storm.running.blocks import Block, ForDriver
from kinesis_spout.storm.running.program import Program

TaskId = tuple[int, int]
"""Stage and partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark(ForDriver):
    """One run of a task, as told to one of those after it."""

    task: TaskId
    run: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen(ForDriver):
    """The marks that one task has come across."""

    marks: dict[TaskId, str] = field(default_factory=dict)
    contradiction: bool = False
    """Whether it came across two of one task."""


class Witness:
    """One run of one task. Mutable."""

    def __init__(self, stage: int, partition: int) -> None:
        self._task = (stage, partition)
        self._run = secrets.token_hex(8)
        self._marks: dict[TaskId, str] = {}
        self._contradiction = False

    @property
    def seen(self) -> Seen:
        """What it has come across."""
        return Seen(marks=dict(self._marks), contradiction=self._contradiction)

    def watched(self, blocks: Iterable[tuple[int, Block]]) -> Iterator[tuple[int, Block]]:
        """Take the marks out of what has come."""
        for partition, block in blocks:
            if isinstance(block, Mark):
                self._contradiction |= self._marks.setdefault(block.task, block.run) != block.run
            else:
                yield partition, block

    def told(self, program: Program) -> Iterator[tuple[int, Block]]:
        """Leave this run's mark for every task after the next exchange, and tell the driver what was seen."""
        mark = Mark(task=self._task, run=self._run)
        for partition in range(max(program.partitions, program.ackers)):
            yield partition, mark
        if self._marks:
            yield 0, self.seen


def contradict(seen: Iterable[Seen]) -> bool:
    """Tell whether tasks have seen different runs of one and the same task."""
    known: dict[TaskId, str] = {}
    return any(
        each.contradiction or any(known.setdefault(task, run) != run for task, run in each.marks.items())
        for each in seen
    )
