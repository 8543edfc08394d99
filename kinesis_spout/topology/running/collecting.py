"""The collector that components use: makes edges, sends tuples on, and XORs what becomes of trees.

Every tuple passes here, so what is done for each is little. A tuple that stays in the process is executed at once,
before ``emit`` returns: nothing waits in a queue.
"""

import logging
from collections.abc import Callable, Sequence
from random import getrandbits
from typing import Any, Final

from kinesis_spout.errors import InvalidConfig
from kinesis_spout.handler import Failure, failure_of
from kinesis_spout.topology.acking import Ending, TreeEnd
from kinesis_spout.topology.components.bolt import FailedException
from kinesis_spout.topology.components.output import DEFAULT_STREAM
from kinesis_spout.topology.components.tuples import Tuple, TupleState
from kinesis_spout.topology.running.component_counts import ComponentCounts
from kinesis_spout.topology.running.trees import Trees

_log: Final = logging.getLogger(__name__)

Send = Callable[[Sequence[Any], dict[int, int]], None]
"""Takes a tuple to one task: its values, and its edge in each of its trees."""


class Output:
    """One stream of a task: where its tuples go."""

    __slots__ = ("chosen", "direct", "size", "tasks", "to_all")

    def __init__(self, size: int, *, direct: bool) -> None:
        self.size = size
        """How many values a tuple has."""
        self.to_all: list[tuple[int, Send]] = []
        """Those that get every tuple, with the ids of their tasks."""
        self.chosen: list[Callable[[Sequence[Any]], list[tuple[int, Send]]]] = []
        """Say for each tuple which tasks get it."""
        self.direct = direct
        self.tasks: dict[int, Send] = {}
        """Of a direct stream: the tasks that may be named."""


class Collector:
    """What one task emits, acks and fails with: ``OutputCollector``, and what spouts' tuples are emitted by. Mutable.

    Args:
        component: whose.
        trees: of this process.
    """

    def __init__(self, component: str, trees: Trees) -> None:
        self._component = component
        self._trees = trees
        self._values = trees.values
        self.outputs: dict[str, Output] = {}
        self.counts = ComponentCounts()

    def emit(
        self, values: Sequence[Any], anchors: Tuple | Sequence[Tuple] = (), stream: str = DEFAULT_STREAM
    ) -> None:
        """See ``OutputCollector``."""
        output = self.outputs.get(stream)
        if output is None or output.direct or len(values) != output.size:
            raise self._refused(values, stream)
        self.counts.emitted += 1
        if isinstance(anchors, Tuple) and not anchors.state:
            edges = anchors.edges
            for _, send in output.to_all:
                if edges:
                    edge = getrandbits(64)
                    anchors.ack_value ^= edge
                    send(values, dict.fromkeys(edges, edge))
                else:
                    send(values, {})
            if not output.chosen:
                return
            for choose in output.chosen:
                for _, send in choose(values):
                    send(values, self._anchored((anchors,)))
            return
        self._emit(output, values, anchors)

    def emit_telling_tasks(
        self, values: Sequence[Any], anchors: Tuple | Sequence[Tuple] = (), stream: str = DEFAULT_STREAM
    ) -> list[int]:
        """See ``OutputCollector``."""
        output = self.outputs.get(stream)
        if output is None or output.direct or len(values) != output.size:
            raise self._refused(values, stream)
        self.counts.emitted += 1
        return self._emit(output, values, anchors)

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        anchors: Tuple | Sequence[Tuple] = (),
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """See ``OutputCollector``."""
        output = self.outputs.get(stream)
        if output is None or not output.direct or len(values) != output.size:
            raise self._refused(values, stream)
        send = output.tasks.get(task)
        if send is None:
            raise InvalidConfig(
                f"component {self._component!r}: expected emit_direct to a task that subscribes to stream "
                f"{stream!r} ({', '.join(map(str, sorted(output.tasks))) or 'none does'}), got {task!r}"
            )
        self.counts.emitted += 1
        send(values, self._anchored(_as_many(anchors)))

    def emit_root(self, values: Sequence[Any], root: int, stream: str = DEFAULT_STREAM) -> None:
        """Emit a spout's tuple, as the root of a tree; root 0 is untracked."""
        output = self.outputs.get(stream)
        if output is None or output.direct or len(values) != output.size:
            raise self._refused(values, stream)
        self.counts.emitted += 1
        trees = self._values
        for _, send in output.to_all:
            if root:
                edge = getrandbits(64)
                trees[root] = trees.get(root, 0) ^ edge
                send(values, {root: edge})
            else:
                send(values, {})
        for choose in output.chosen:
            for _, send in choose(values):
                edge = getrandbits(64)
                if root:
                    trees[root] = trees.get(root, 0) ^ edge
                send(values, {root: edge} if root else {})

    def ack(self, tup: Tuple) -> None:
        """See ``OutputCollector``."""
        if tup.state:
            self.counts.acked_twice += 1
            return
        tup.state = TupleState.ACKED
        self.counts.acked += 1
        trees, ack_value = self._values, tup.ack_value
        for root, edge in tup.edges.items():
            value = trees.get(root, 0) ^ edge ^ ack_value
            if value:
                trees[root] = value
            else:
                trees.pop(root, None)

    def fail(self, tup: Tuple, reason: str | BaseException = "") -> None:
        """See ``OutputCollector``."""
        if tup.state:
            self.counts.acked_twice += 1
            return
        tup.state = TupleState.FAILED
        self.counts.failed += 1
        end = TreeEnd(ending=Ending.FAILED, component=self._component, failure=_failure(reason))
        for root in tup.edges:
            self._trees.end(root, end)

    def report_error(self, error: BaseException) -> None:
        """See ``OutputCollector``."""
        self.counts.errors += 1
        self.counts.last_error = failure_of(error).error_text
        _log.warning("component %s: %s", self._component, self.counts.last_error)

    def reset_timeout(self, tup: Tuple) -> None:
        """See ``OutputCollector``."""
        self._trees.reset_timeout(tup.edges)

    def is_overdue(self, tup: Tuple) -> bool:
        """See ``OutputCollector``."""
        return self._trees.is_overdue(tup.edges)

    def _emit(self, output: Output, values: Sequence[Any], anchors: Tuple | Sequence[Tuple]) -> list[int]:
        many = _as_many(anchors)
        targets = list(output.to_all)
        for choose in output.chosen:
            targets += choose(values)
        for _, send in targets:
            send(values, self._anchored(many))
        return [task for task, _ in targets]

    def _anchored(self, anchors: Sequence[Tuple]) -> dict[int, int]:
        """Draw an edge for each anchor, and XOR it into that and into all of its trees."""
        edges: dict[int, int] = {}
        for anchor in anchors:
            if anchor.state:
                said = anchor.state.name.lower()
                raise InvalidConfig(
                    f"component {self._component!r}: expected an anchor that is neither acked nor failed, got "
                    f"one that was {said} before: emit first, then ack"
                )
            if anchor.edges:
                edge = getrandbits(64)
                anchor.ack_value ^= edge
                for root in anchor.edges:
                    edges[root] = edges.get(root, 0) ^ edge
        return edges

    def _refused(self, values: Sequence[Any], stream: str) -> InvalidConfig:
        where = f"component {self._component!r}"
        output = self.outputs.get(stream)
        if output is None:
            known = ", ".join(sorted(self.outputs)) or "none"
            return InvalidConfig(f"{where}: expected a stream that it declares ({known}), got {stream!r}")
        if len(values) != output.size:
            return InvalidConfig(
                f"{where}, stream {stream!r}: expected {output.size} values, as many as fields are declared, got "
                f"{len(values)}"
            )
        way = "emit_direct" if output.direct else "emit"
        return InvalidConfig(f"{where}, stream {stream!r}: expected {way}, as the stream is declared")


def _as_many(anchors: Tuple | Sequence[Tuple]) -> Sequence[Tuple]:
    return (anchors,) if isinstance(anchors, Tuple) else anchors


def _failure(reason: str | BaseException) -> Failure:
    if isinstance(reason, FailedException):
        return Failure(error_text=str(reason) or "failed without a reason")
    if isinstance(reason, BaseException):
        return failure_of(reason)
    return Failure(error_text=reason or "failed without a reason")
