"""Combines tuples for a ``CombinerBolt``: they are gathered as they come, and combined many at a time.

A tuple costs little more than to be packed for an exchange. It is acked when it is gathered; from then on its
tree is part of the one tuple that will be emitted for its key. That tuple can belong to thousands of trees.
When it leaves its process it travels with one root, of a *group*, whose trees are read only if one fails.
"""

from collections.abc import Callable, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, Final

from kinesis_spout.model.handler import failure_of
from kinesis_spout.storm.components.bolt import CombinerBolt
from kinesis_spout.storm.components.tuples import Source, Tuple
from kinesis_spout.storm.graph.grouping import Send
from kinesis_spout.storm.running.collecting import SendAll, TaskCollector
from kinesis_spout.storm.running.trees import Trees

_GATHERED: Final = 5_000

Raised = Callable[[BaseException, Tuple], None]


class Combining:
    """The tuples of one task. Mutable.

    ``raised`` is called when a tuple cannot be combined, with the error.
    """

    def __init__(self, bolt: CombinerBolt, collector: TaskCollector, trees: Trees, raised: Raised) -> None:
        self._bolt = bolt
        self._collector = collector
        self._trees = trees
        self._raised = raised
        self._senders: dict[Source, tuple[Send, SendAll]] = {}
        self._gathered: list[Callable[[], None]] = []
        """By source: combines what was gathered of it."""
        self._combined: dict[Any, list[Any]] = {}
        """By key: the value, and the roots of all tuples in it."""

    def senders(self, source: Source) -> tuple[Send, SendAll]:
        """Take one tuple of a source; take several of the same trees."""
        known = self._senders.get(source)
        if known is None:
            known = self._senders[source] = self._new_senders(source)
        return known

    def _new_senders(self, source: Source) -> tuple[Send, SendAll]:
        rows: list[Sequence[Any]] = []
        roots: list[int] = []
        others_of: dict[int, tuple[int, ...]] = {}
        trees, most = self._trees, _GATHERED
        add_values, add_root = rows.append, roots.append

        def combine() -> None:
            self._combine(source, rows, roots, others_of)
            rows.clear()
            roots.clear()
            others_of.clear()

        def send(values: Sequence[Any], root: int, others: tuple[int, ...] | None) -> None:
            trees.has_left = True
            if others is not None:
                others_of[len(rows)] = others
            add_values(values)
            add_root(root)
            if len(rows) >= most:
                combine()

        def send_all(many: Sequence[Sequence[Any]], root: int, others: tuple[int, ...] | None) -> None:
            if others is not None:
                others_of.update(dict.fromkeys(range(len(rows), len(rows) + len(many)), others))
            trees.has_left = True
            rows.extend(many)
            roots.extend(repeat(root, len(many)))
            if len(rows) >= most:
                combine()

        self._gathered.append(combine)
        return send, send_all

    def flush(self) -> None:
        for combine in self._gathered:
            combine()
        combined, self._combined = self._combined, {}
        is_one = len(self._bolt.key) == 1
        for key, (value, roots) in combined.items():
            try:
                self._collector.emit_combined((key, value) if is_one else (*key, value), roots)
            except BaseException as error:  # noqa: BLE001 - whatever a grouping raises fails all trees in it
                self._collector.let_through(error)
                self._collector.refused({*roots} - {0}, failure_of(error).error_text)

    def _combine(
        self,
        source: Source,
        rows: Sequence[Sequence[Any]],
        roots: Sequence[int],
        others_of: dict[int, tuple[int, ...]],
    ) -> None:
        bolt, combined, ends = self._bolt, self._combined, self._trees.ends
        combine, get = bolt.combine, combined.get
        keys = map(itemgetter(*map(source.index, bolt.key)), rows)
        values = repeat(1) if bolt.value is None else map(itemgetter(source.index(bolt.value)), rows)
        failed = 0
        for at, (key, value, root) in enumerate(zip(keys, values, roots, strict=False)):
            if ends and root in ends and at not in others_of:
                continue  # Its only tree has failed, and comes again.
            try:
                known = get(key)
                if known is None:
                    combined[key] = known = [value, [root]]
                else:
                    known[0] = combine(known[0], value)
                    known[1].append(root)
            except BaseException as error:  # noqa: BLE001 - whatever it raises fails its tuple
                failed += 1
                self._raised(error, Tuple(rows[at], source, root, others_of.get(at)))
                continue
            if others_of and at in others_of:
                known[1].extend(others_of[at])
        self._collector.counts.executed += len(rows)
        self._collector.counts.acked += len(rows) - failed
