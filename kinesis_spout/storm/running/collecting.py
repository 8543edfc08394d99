"""The collector that components use: sends tuples on, and counts what becomes of trees.

Every tuple passes here, so each costs little. A tuple that stays in the process is executed at once, before
``emit`` returns: nothing waits in a queue. All targets of a tuple are chosen before it is sent to the first,
so a grouping that raises has sent it to no task. A bolt can use its list of values again after ``emit``, so
the collector sends a copy; a Python tuple cannot change, and is sent as it is.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import structs

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.model.handler import Failure, failure_of, failure_saying
from kinesis_spout.model.logs import Allowance
from kinesis_spout.storm.components.bolt import CallHangs, FailedException, Suspected
from kinesis_spout.storm.components.tuples import Tuple, TupleState, check_values, names_of
from kinesis_spout.storm.graph.grouping import Choose, Send, Target
from kinesis_spout.storm.multilang.protocol import DEFAULT_STREAM
from kinesis_spout.storm.running.acking import TreeEnd
from kinesis_spout.storm.running.counts import ComponentCounts
from kinesis_spout.storm.running.trees import Trees

if TYPE_CHECKING:
    from kinesis_spout.storm.components.given import Results

_ACKED: Final = TupleState.ACKED
_FAILED: Final = TupleState.FAILED
_PLAIN: Final[frozenset[type]] = frozenset((tuple, list))
MOST_LINES: Final = 10
"""Errors of a task in the log, a minute."""
_log: Final = logging.getLogger(__name__)

SendAll = Callable[[Sequence[Sequence[Any]], int, tuple[int, ...] | None], None]
"""Takes several tuples to one task, by the values of each; see ``Send``."""


class ChosenTuple(NamedTuple):
    """A tuple that is to be emitted as a result."""

    stream: str
    values: Sequence[Any]
    task: int | None
    """That ``emit_direct`` names."""
    targets: Sequence[Target]


class Output:
    """One stream of a task: where its tuples go. ``size`` is how many values a tuple has.

    ``to_all`` get every tuple; each of ``chosen`` chooses further tasks. ``direct``: tuples go to the task
    that ``emit_direct`` names, one of ``tasks`` by its id.
    """

    __slots__ = ("_choose", "_to_all", "direct", "send", "send_all", "size", "tasks")

    def __init__(
        self,
        size: int,
        *,
        direct: bool = False,
        to_all: Sequence[Target] = (),
        chosen: Sequence[Choose] = (),
        tasks: Mapping[int, Send] | None = None,
        send_all: SendAll | None = None,
    ) -> None:
        """``send_all``: takes several tuples to the only task that gets any, if it can."""
        self.size = size
        self.direct = direct
        self._to_all = to_all
        self._choose = _one_choice(to_all, chosen)
        """Chooses the tasks that get a tuple; None if that is always ``to_all``."""
        self.send = self._sender()
        """Sends a tuple to all its tasks."""
        is_only = len(to_all) == 1 and not chosen
        self.send_all: SendAll = send_all if send_all is not None and is_only else self._send_one_by_one
        self.tasks = tasks or {}

    def targets(self, values: Sequence[Any]) -> Sequence[Target]:
        return self._to_all if self._choose is None else self._choose(values)

    def _send_one_by_one(
        self, rows: Sequence[Sequence[Any]], root: int, others: tuple[int, ...] | None
    ) -> None:
        send = self.send
        for values in rows:
            send(values, root, others)

    def _sender(self) -> Send:
        to_all, choose = self._to_all, self._choose
        if choose is None and len(to_all) == 1:
            return to_all[0][1]  # One task gets every tuple, as usual.

        def send_to_all(values: Sequence[Any], root: int, others: tuple[int, ...] | None) -> None:
            for _, send in to_all if choose is None else choose(values):
                send(values, root, others)

        return send_to_all


def _one_choice(to_all: Sequence[Target], chosen: Sequence[Choose]) -> Choose | None:
    if not chosen:
        return None
    if len(chosen) == 1 and not to_all:
        return chosen[0]
    return lambda values: [*to_all, *(target for choose in chosen for target in choose(values))]


class ReportedErrors:
    """The errors of one task: all are counted, as many logged as a person can read. Mutable; for one thread."""

    def __init__(self, who: str, counts: ComponentCounts, clock: Callable[[], float]) -> None:
        self._who = who
        self._counts = counts
        self._clock = clock
        self._lines = Allowance(MOST_LINES)

    def report(self, error: BaseException) -> None:
        self.count(failure_of(error).error_text)
        self.log(self._counts.last_error)

    def count(self, text: str) -> None:
        self._counts.errors += 1
        self._counts.last_error = text

    def log(self, text: str) -> None:
        """Log a line, unless there were too many in this minute; the next one then says how many were left out."""
        if self._lines.takes_one(self._clock()):
            left_out = self._lines.take_left_out()
            more = f" ({left_out} errors before it were left out of the log)" if left_out else ""
            _log.warning("%s: %s%s", self._who, text, more)
        elif self._lines.is_just_used_up:
            _log.warning(
                "%s has more than %d errors a minute; the others are only counted", self._who, MOST_LINES
            )


class TaskCollector:
    """The ``OutputCollector`` of one task: emits, acks and fails. Emits spouts' tuples, too. Mutable.

    Exceptions in ``ends_run`` end the stage's run instead of failing their tuple.
    """

    def __init__(self, component: str, trees: Trees, ends_run: tuple[type[BaseException], ...] = ()) -> None:
        self._ends_run = ends_run
        self._component = component
        self._trees = trees
        self.outputs: dict[str, Output] = {}
        self.drop_last: Callable[[int], None] = _nothing_left
        """Drops what a tree that failed has sent last to bolts in other processes that would undo it."""
        self.results: Results | None = None
        """Set for a bolt with state."""
        self.emits_results = False
        """True if what is emitted without an anchor, or with a tick as its anchor, is gathered."""
        self.gathered: list[ChosenTuple] = []
        self.ended_in_tick: list[int] | None = None
        """The roots of held tuples that were acked in the tick at hand; None while there is none."""
        self.counts = ComponentCounts()
        self.errors = ReportedErrors(f"component {component}", self.counts, trees.clock)

    def emit(
        self, values: Sequence[Any], anchors: Tuple | Sequence[Tuple] = (), stream: str = DEFAULT_STREAM
    ) -> None:
        if not isinstance(anchors, Tuple) or anchors.state or self.emits_results:
            self.emit_telling_tasks(values, anchors, stream)
            return
        output = self.outputs.get(stream) if type(values) in _PLAIN else None
        if output is None or output.direct or len(values) != output.size:
            output = self._checked(values, stream, direct=False)
        if not isinstance(values, tuple):
            values = list(values)
        output.send(values, anchors.root, anchors.others)
        self.counts.emitted += 1

    def emit_all(
        self,
        rows: Iterable[Sequence[Any]],
        anchors: Tuple | Sequence[Tuple] = (),
        stream: str = DEFAULT_STREAM,
    ) -> None:
        output = self.output(stream)
        size = None if output.direct else output.size
        many = [
            values if type(values) is tuple and len(values) == size else self._copy(values, stream, size)
            for values in rows
        ]
        opened = self._open(anchors)
        if self.emits_results and not any(each.root for each in opened):
            self.gathered += [ChosenTuple(stream, each, None, output.targets(each)) for each in many]
            return
        root, others = (opened[0].root, opened[0].others) if len(opened) == 1 else _trees_of(opened)
        output.send_all(many, root, others)
        self.counts.emitted += len(many)

    def _copy(self, values: Sequence[Any], stream: str, size: int | None) -> Sequence[Any]:
        if type(values) not in _PLAIN or len(values) != size:
            self._checked(values, stream, direct=False)
        return values if isinstance(values, tuple) else list(values)

    def emit_combined(self, values: Sequence[Any], roots: Sequence[int]) -> None:
        """Emit a tuple that is made of several, by the roots of those."""
        self.outputs[DEFAULT_STREAM].send(values, *self._trees.root_for(roots))
        self.counts.emitted += 1

    def emit_telling_tasks(
        self, values: Sequence[Any], anchors: Tuple | Sequence[Tuple] = (), stream: str = DEFAULT_STREAM
    ) -> list[int]:
        output = self._checked(values, stream, direct=False)
        many = self._open(anchors)
        values = values if isinstance(values, tuple) else list(values)
        targets = output.targets(values)
        self._emit(ChosenTuple(stream, values, None, targets), many)
        return [task for task, _ in targets]

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        anchors: Tuple | Sequence[Tuple] = (),
        stream: str = DEFAULT_STREAM,
    ) -> None:
        output = self._checked(values, stream, direct=True)
        many = self._open(anchors)
        copied = values if isinstance(values, tuple) else list(values)
        self._emit(ChosenTuple(stream, copied, task, [(task, self._to(task, output, stream))]), many)

    def _emit(self, chosen: ChosenTuple, anchors: Sequence[Tuple]) -> None:
        root, others = _trees_of(anchors)
        if self.emits_results and not root:
            self.gathered.append(chosen)
            return
        self.counts.emitted += 1
        for _, send in chosen.targets:
            send(chosen.values, root, others)

    def chosen(self, stream: str, values: Sequence[Any], task: int | None) -> ChosenTuple:
        """Choose the tasks of a tuple that was kept. Raises if the topology has no place for it any more."""
        output = self._checked(values, stream, direct=task is not None)
        if task is None:
            return ChosenTuple(stream, values, None, output.targets(values))
        return ChosenTuple(stream, values, task, [(task, self._to(task, output, stream))])

    def _to(self, task: int, output: Output, stream: str) -> Send:
        send = output.tasks.get(task)
        if send is None:
            raise InvalidConfig(
                f"component {self._component!r}: expected emit_direct to a task that subscribes to stream "
                f"{stream!r} ({', '.join(map(str, sorted(output.tasks))) or 'none does'}), got {task!r}"
            )
        return send

    def emit_root(self, values: Sequence[Any], root: int, stream: str = DEFAULT_STREAM) -> bool:
        """Emit a spout's tuple as the root of a tree, 0 if untracked; tells whether its tree is still open."""
        output = self.outputs.get(stream)
        if output is None or output.direct or type(values) not in _PLAIN or len(values) != output.size:
            output = self._checked(values, stream, direct=False)
        trees = self._trees
        trees.has_left = False
        output.send(values, root, None)
        self.counts.emitted += 1
        if trees.ends and root in trees.ends:
            self.drop_last(root)
        return root in trees.opened or (trees.has_left and root != 0)

    def ack(self, tup: Tuple) -> None:
        if tup.state:
            self.counts.acked_twice += 1
            return
        tup.state = _ACKED
        self.counts.acked += 1
        if tup.is_held:
            self._trees.count(tup.roots, -1)
            if self.ended_in_tick is not None:
                self.ended_in_tick += tup.roots

    def fail(self, tup: Tuple, reason: str | BaseException = "") -> None:
        if tup.state:
            self.counts.acked_twice += 1
            return
        if isinstance(reason, BaseException):
            self.let_through(reason)
        if isinstance(reason, CallHangs):
            self.time_out(tup, reason.failure)
            return
        tup.state = _FAILED
        self.counts.failed += 1
        self._end(
            tup.roots, TreeEnd(component=self._component, failure=_failure(reason)), is_held=tup.is_held
        )

    def time_out(self, tup: Tuple, failure: Failure) -> None:
        tup.state = TupleState.TIMED_OUT
        self.counts.timed_out += 1
        self._end(tup.roots, TreeEnd.after_time_out(failure, self._component), is_held=tup.is_held)

    def _end(self, roots: Collection[int], end: TreeEnd, *, is_held: bool = False) -> None:
        if not is_held:
            self._trees.count(roots, 1)
        for root in roots:
            self._trees.end(root, end)

    def report_error(self, error: BaseException) -> None:
        self.let_through(error)
        self.errors.report(error)

    def let_through(self, error: BaseException) -> None:
        if isinstance(error, self._ends_run):
            raise error

    def report_metric(self, name: str, value: Any) -> None:
        self.counts.report(name, value)

    def reset_timeout(self, tup: Tuple) -> None:
        self._trees.reset_timeout(tup.roots)

    def is_overdue(self, tup: Tuple) -> bool:
        return self._trees.is_overdue(tup.roots)

    def raised(self, root: int, error: BaseException) -> None:
        """Take in what a grouping has raised for a spout's tuple, which no task has got."""
        self.report_error(error)
        if root:
            self._end((root,), TreeEnd(component=self._component, failure=failure_of(error)))

    def refused(self, roots: Collection[int], reason: str) -> None:
        """Fail the trees of tuples, even acked ones: their results cannot travel, or were undone.

        Without a tree the error is reported.
        """
        self._end(roots, TreeEnd(component=self._component, failure=failure_saying(reason)))
        if roots:
            self.errors.count(reason)
        else:
            self.report_error(TypeError(reason))

    def output(self, stream: str) -> Output:
        output = self.outputs.get(stream)
        if output is None:
            raise InvalidConfig(
                f"component {self._component!r}: expected a stream that it declares ({names_of(self.outputs)}), "
                f"got {stream!r}"
            )
        return output

    def _checked(self, values: Sequence[Any], stream: str, *, direct: bool) -> Output:
        first: object = values
        if isinstance(first, Tuple) or not isinstance(stream, str):
            raise InvalidConfig(
                f"component {self._component!r}: expected the values first, then anchors, then the stream; got "
                f"{type(first).__name__} first"
            )
        output = self.output(stream)
        where = f"component {self._component!r}, stream {stream!r}"
        if output.direct is not direct:
            way = "emit_direct, because the stream is" if output.direct else "emit, because the stream is not"
            raise InvalidConfig(f"{where}: expected {way} declared as direct")
        check_values(where, values, output.size)
        return output

    def _open(self, anchors: Tuple | Sequence[Tuple]) -> Sequence[Tuple]:
        many: Sequence[Tuple]
        if isinstance(anchors, Tuple) or not isinstance(anchors, Iterable):
            many = (anchors,)
        else:
            many = anchors if isinstance(anchors, (tuple, list)) else tuple(anchors)
        for anchor in many:
            if not isinstance(anchor, Tuple):
                raise InvalidConfig(
                    f"component {self._component!r}: expected tuples that execute was given as anchors, got "
                    f"{type(anchor).__name__}"
                )
            if anchor.state:
                has_timed_out = anchor.state is TupleState.TIMED_OUT
                said = "timed out" if has_timed_out else f"was {anchor.state.name.lower()}"
                raise InvalidConfig(
                    f"component {self._component!r}: expected an anchor that is neither acked nor failed, got "
                    f"one that {said} before: emit first, then ack"
                )
        return many


def _nothing_left(_: int) -> None:
    """Nothing leaves a process that has all bolts."""


def _trees_of(anchors: Sequence[Tuple]) -> tuple[int, tuple[int, ...] | None]:
    roots = tuple(dict.fromkeys(root for anchor in anchors for root in anchor.roots))
    return (roots[0], roots[1:] or None) if roots else (0, None)


def _failure(reason: str | BaseException) -> Failure:
    if isinstance(reason, Suspected):
        return structs.replace(failure_of(reason), killed_worker=True)
    if isinstance(reason, BaseException) and not isinstance(reason, FailedException):
        return failure_of(reason)
    return failure_saying(reason)
