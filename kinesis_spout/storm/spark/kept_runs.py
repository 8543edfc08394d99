"""The stages that a Python worker keeps from task to task, with the user's bolts in them; how hanging calls end.

**A call of a component that does not return** costs its tuple and not its whole micro-batch. A thread looks
at what the main thread does, a few times in the message time-out. Once it has found the same call of a
component for longer than that time-out, a signal raises ``CallHangs`` there, which ends loops, sleeps, and
waits for sockets and locks. The tuple of that call has then timed out, and the component is named. A call
that no signal ends (a C library that neither returns nor looks for signals) still ends with its job.

Nothing is raised inside our own code, which must not be left half done: a tuple is emitted as a whole or not
at all. Tuples cost nothing more for this: the thread reads from the stack whose call it is.
"""

import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic
from types import FrameType
from typing import Final, NamedTuple

from kinesis_spout.model.errors import StateError
from kinesis_spout.model.handler import found_at
from kinesis_spout.spark.pickled_handler import PickledHandler
from kinesis_spout.storm.components.bolt import CallHangs
from kinesis_spout.storm.running.bolt_task import CALLS
from kinesis_spout.storm.running.program import Program
from kinesis_spout.storm.running.stage_run import StageRun
from kinesis_spout.storm.state.partition import StateParts

_MOST_KEPT: Final = 64
_IDLE_SECONDS: Final = 900.0
"""A run that was not used for this long is given up, with its bolts and its state, when a task of any topology
ends here: its topology was stopped, or its tasks have gone to other workers."""

_SIGNAL: Final = signal.SIGUSR2
_LONGER: Final = 1.25
"""A call may take this many message time-outs: a shell bolt checks the time-out itself, and comes first."""
_LOOKS: Final = 8
"""In a message time-out."""
_LEAST_LOOK_SECONDS: Final = 0.01
_OURS: Final = "kinesis_spout."
_MADE_FOR_USERS: Final = "kinesis_spout.storm.components."
"""Ours, but made for user's code to raise in."""


class KeptRun(NamedTuple):
    run: StageRun
    parts: StateParts


_kept: Final[dict[tuple[str, int, int], tuple[KeptRun, float]]] = {}
"""By program, stage and partition, with when it was used last; monotonic. Those that were used last come last."""


class ShippedProgram:
    """A program on its way to the executors: pickled once, unpickled once a worker."""

    def __init__(self, program: Program, state: str | None) -> None:
        # The id tells one start of a topology from the next: each start gets its own bolts.
        self._pickled = PickledHandler.of(partial(_program, program, uuid.uuid4().hex))
        self._state = state

    @contextmanager
    def stage(self, stage: int, partition: int) -> Iterator[KeptRun]:
        """This worker's run of a stage. A micro-batch that does not end in order is the run's last."""
        key = (self._pickled.digest, stage, partition)
        known = _kept.pop(key, None)
        kept = self._new_run(stage, partition) if known is None else known[0]
        run = kept.run
        try:
            with hanging_calls_end(run.program.timeout_seconds, lambda: run.trees.reset_at):
                yield kept
        except BaseException:
            run.close()
            raise
        # The collector of garbage walks through all that is kept, and runs of stopped topologies are kept, too.
        run.forget()
        now = monotonic()
        idle = sum(used_at < now - _IDLE_SECONDS for _, used_at in _kept.values())
        for oldest in list(_kept)[: max(idle, len(_kept) + 1 - _MOST_KEPT)]:
            _kept.pop(oldest)[0].run.close()
        _kept[key] = kept, now

    def _new_run(self, stage: int, partition: int) -> KeptRun:
        run = StageRun(self._pickled.load()(), stage, partition, monotonic, ends_run=(StateError,))
        return KeptRun(run, StateParts(self._state or ""))


def _program(program: Program, _: str) -> Program:
    return program


@contextmanager
def hanging_calls_end(message_timeout_seconds: float, reset_at: Callable[[], float]) -> Iterator[None]:
    """End calls of components that hang; only on the main thread, and if no other code uses the signal.

    The call at hand counts from ``reset_at``: when a component last restarted a time-out; monotonic.
    """
    if threading.current_thread() is not threading.main_thread() or not _signal_is_ours():
        yield
        return
    watch = _Watch(message_timeout_seconds, reset_at)
    _watches.append(watch)
    threading.Thread(target=watch.watch, name="kinesis-spout-hanging-calls", daemon=True).start()
    try:
        yield
    finally:
        _watches.remove(watch)
        watch.ended.set()


class _Watch:
    """Looks at the main thread, on its own thread. Mutable."""

    def __init__(self, message_timeout_seconds: float, reset_at: Callable[[], float]) -> None:
        self._reset_at = reset_at
        self._look_seconds = max(_LEAST_LOOK_SECONDS, message_timeout_seconds / _LOOKS)
        self._most_seconds = message_timeout_seconds * _LONGER
        self._main = threading.main_thread().ident or 0
        self._since = 0.0
        self.ended = threading.Event()
        self.call: FrameType | None = None
        """That was found last. It is kept, so that no other one is taken for it."""

    def watch(self) -> None:
        while not self.ended.wait(self._look_seconds):
            # A call can have taken the signal for itself, or given it back to the system, where it kills.
            if self._hangs(monotonic()) and signal.getsignal(_SIGNAL) is _interrupt:
                signal.pthread_kill(self._main, _SIGNAL)
        self.call = None

    def _hangs(self, now: float) -> bool:
        call = _call_in(sys._current_frames().get(self._main))  # noqa: SLF001 - there is no other way to ask
        if call is not self.call:
            self.call, self._since = call, now
        return call is not None and now - max(self._since, self._reset_at()) >= self._most_seconds

    def interrupt(self, frame: FrameType | None) -> None:
        """Raise in the call that hangs; not if it has returned by now. If it is in our code, the next time."""
        call, at = self.call, frame
        if frame is None or call is None or frame is call or _call_in(frame) is not call:
            return
        while at is not None and at is not call:
            if _is_ours(at):
                return
            at = at.f_back
        text = f"timed out: the call had not returned after {self._most_seconds:g} s"
        raise CallHangs(text, found_at(frame, "timed out", call))


_watches: Final[list[_Watch]] = []


def _call_in(frame: FrameType | None) -> FrameType | None:
    while frame is not None and frame.f_code not in CALLS:
        frame = frame.f_back
    return frame


def _is_ours(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__"))
    return module.startswith(_OURS) and not module.startswith(_MADE_FOR_USERS)


def _interrupt(_: int, frame: FrameType | None) -> None:
    for watch in _watches:
        watch.interrupt(frame)


def _signal_is_ours() -> bool:
    """Take the signal from now on, unless the user's code has it. For ever: one on its way must never kill."""
    if signal.getsignal(_SIGNAL) is signal.SIG_DFL:
        signal.signal(_SIGNAL, _interrupt)
    return signal.getsignal(_SIGNAL) is _interrupt
