"""The stages that a Python worker keeps from task to task, with the user's bolts in them."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final, NamedTuple

from kinesis_spout.model.errors import StateError
from kinesis_spout.spark.pickled_handler import PickledHandler
from kinesis_spout.storm.running.program import Program
from kinesis_spout.storm.running.stage.one_by_one import OneByOneRun
from kinesis_spout.storm.running.stage.stage_run import StageRun
from kinesis_spout.storm.spark.tasks.hanging_calls import hanging_calls_end
from kinesis_spout.storm.spark.tasks.state_parts import StateParts

_MOST_KEPT: Final = 64
_IDLE_SECONDS: Final = 900.0
"""A run that was not used for so long is given up, with its bolts and its state, when a task of any topology ends
here: its topology was stopped, or its tasks have gone to other workers."""

Key = tuple[str, int, int]


class KeptRun(NamedTuple):
    """A stage, with the keyed state of its tasks."""

    run: StageRun
    parts: StateParts


class ShippedProgram:
    """A program on its way to the executors: pickled once, unpickled once a worker.

    Args:
        program: what runs.
        state: where its keyed state is.
    """

    def __init__(self, program: Program, state: str | None) -> None:
        self._pickled = PickledHandler.of(_Loaded(program))
        self._state = state

    @contextmanager
    def stage(self, stage: int, partition: int) -> Iterator[KeptRun]:
        """Give this worker's run of a stage. A micro-batch that does not end in order is the run's last."""
        key = (self._pickled.digest, stage, partition)
        _used_at.pop(key, None)
        kept = _kept.pop(key, None) or KeptRun(
            _run(self._pickled.load()(), stage, partition), StateParts(self._state or "")
        )
        try:
            run = kept.run
            with hanging_calls_end(run.program.timeout_seconds, lambda: run.trees.reset_at):
                yield kept
        except BaseException:
            kept.run.close()
            raise
        now = monotonic()
        idle = sum(used_at < now - _IDLE_SECONDS for used_at in _used_at.values())
        for oldest in list(_kept)[: max(idle, len(_kept) + 1 - _MOST_KEPT)]:
            del _used_at[oldest]
            _kept.pop(oldest).run.close()
        _kept[key], _used_at[key] = kept, now


def _run(program: Program, stage: int, partition: int) -> StageRun:
    kind = OneByOneRun if program.is_one_by_one else StageRun
    return kind(program, stage, partition, monotonic, ends_run=(StateError,))


class _Loaded:
    """Gives the program; what is pickled is something to call."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.started = uuid.uuid4().hex
        """Tells one start of a topology from the next: it gets bolts of its own."""

    def __call__(self) -> Program:
        return self._program


_kept: Final[dict[Key, KeptRun]] = {}
"""Those that were used last come last."""
_used_at: Final[dict[Key, float]] = {}
"""When each of them was used last; monotonic."""
