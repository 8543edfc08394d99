"""The handle on a running topology; ``start`` gives it."""

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from time import monotonic
from typing import Any, ClassVar, Final

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.consumer.counters import Counters
from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.spark.driver.query import SpoutQuery
from kinesis_spout.spark.driver.running_query import RunningQuery
from kinesis_spout.storm.picture import mermaid
from kinesis_spout.storm.running.counts import ComponentCounts, added
from kinesis_spout.storm.spark.own_spout import OwnSpoutQuery
from kinesis_spout.storm.topology_conf import BuiltTopology

_LOOK_SECONDS: Final = 0.05
_WATCH_SECONDS: Final = 0.5
"""The time between two looks for a spout that has ended with an error."""

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunningSpout:
    query: SpoutQuery | OwnSpoutQuery
    counts: Callable[[], Mapping[str, ComponentCounts]]


class TopologyQuery(RunningQuery):
    """One running topology. Any thread can call its methods.

    With several spouts each runs its own micro-batches through the graph, and this speaks for all of them; a
    shard is then called ``spout/shardId``, and ``spout/stream/shardId`` where that spout can read several
    streams.
    """

    _shard_form: ClassVar[str] = "spout/shardId"

    def __init__(self, topology: BuiltTopology, name: str, spouts: Mapping[str, RunningSpout]) -> None:
        super().__init__(name)
        self._topology = topology
        self._spouts = dict(spouts)
        self._stopping = threading.Event()

    def watch(self) -> None:
        """End all spouts once one has ended with an error: then the query has ended, and can be run again."""
        if len(self._spouts) > 1:
            name = f"kinesis-spout-{self._name}-spouts"
            threading.Thread(target=self._end_together, name=name, daemon=True).start()

    def _end_together(self) -> None:
        while self._ended is None:
            if self._stopping.wait(_WATCH_SECONDS):
                return
        error = self.exception()
        if error is None:
            return
        _log.error("the topology %s ends, because one of its spouts has ended: %s", self._name, error)
        try:
            self.stop()
        except KinesisSpoutError as unstored:
            _log.warning("the last progress could not be stored: %s", unstored)

    @property
    def id(self) -> str:
        """The same for every run of this topology on the same streams."""
        ids = "/".join(sorted(spout.query.id for spout in self._spouts.values()))
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"kinesis-spout:topology/{ids}"))

    @property
    def spouts(self) -> dict[str, SpoutQuery]:
        """The queries of the ``KinesisSpout``s, by the spouts' ids: shards, counters, pauses."""
        return {name: query for name, query in self._queries.items() if isinstance(query, SpoutQuery)}

    @property
    def own_spouts(self) -> dict[str, OwnSpoutQuery]:
        """The queries of the spouts of your own, by the spouts' ids."""
        return {name: query for name, query in self._queries.items() if isinstance(query, OwnSpoutQuery)}

    @property
    def _queries(self) -> dict[str, SpoutQuery | OwnSpoutQuery]:
        return {name: spout.query for name, spout in self._spouts.items()}

    @property
    def isActive(self) -> bool:  # noqa: N802
        """True if it runs: it was neither stopped nor ended by an error, nor have all spouts come to their end."""
        return self._ended is None

    @property
    def _ended(self) -> SpoutQuery | OwnSpoutQuery | None:
        """The spout whose end is the topology's, if it has ended; one that is done lets the others continue."""
        queries = list(self._queries.values())
        ended = [query for query in queries if not query.isActive]
        done = [query for query in ended if query.is_done]
        if len(done) == len(queries):
            return done[0]
        broken = [query for query in ended if query.exception() is not None]
        return next((query for query in (*broken, *ended) if query not in done), None)

    def _status_while_active(self) -> dict[str, Any]:
        running = [query.status for query in self._queries.values() if query.isActive]
        # One can have ended a moment ago.
        each = running or [query.status for query in self._queries.values()]
        return next((status for status in each if status["isTriggerActive"]), each[0])

    @property
    def is_done(self) -> bool:
        """True if every spout has come up to its `until`; see ``SpoutQuery``. One of your own has no end."""
        return all(query.is_done for query in self._queries.values())

    def _consumers(self) -> Mapping[str, Consumer]:
        spouts = self.spouts.items()
        several = len(spouts) > 1
        return {
            f"{spout}/" * several + prefix: consumer
            for spout, query in spouts
            for prefix, consumer in query._consumers().items()  # noqa: SLF001 - a handle over handles
        }

    def _counted_before(self) -> Iterable[Counters]:
        return [each for query in self._queries.values() for each in query._counted_before()]  # noqa: SLF001

    @property
    def gone(self) -> dict[str, BaseException]:
        """The streams that are deleted, and how that was noticed. They are looked for again."""
        return {stream: error for query in self.spouts.values() for stream, error in query.gone.items()}

    def mermaid(self) -> str:
        """Draw the topology with the components' counts as they are now; see ``Topology.mermaid``."""
        return mermaid(self._topology.graph, self.components)

    @property
    def components(self) -> dict[str, ComponentCounts]:
        """The counts of each component since the start, in the order of the flow.

        Executed, emitted, acked, failed, timed out, latency; of a spout, the tuples that it emitted. Latencies are
        those of the last ten minutes.
        """
        counts = added(spout.counts() for spout in self._spouts.values())
        return {name: counts.get(name, ComponentCounts()) for name in self._topology.graph.order}

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802
        """The progress of the newest micro-batches of all spouts, oldest first, the newest with ``components``."""
        of_all = [
            progress | {"name": self._name, "spout": name}
            for name, query in self._queries.items()
            for progress in query.recentProgress
        ]
        of_all.sort(key=lambda progress: str(progress["timestamp"]))
        if of_all:
            of_all[-1]["components"] = {
                component: counts.told() for component, counts in self.components.items()
            }
        return of_all

    def exception(self) -> BaseException | None:
        """The error that ended the topology, if one did."""
        errors = (query.exception() for query in self._queries.values())
        return next((error for error in errors if error is not None), None)

    def _await_end(self, timeout: float | None) -> bool:
        """Wait until the first failed spout, or the last that is done, has given up its shards."""
        until = None if timeout is None else monotonic() + timeout
        while (ended := self._ended) is None:
            left = _LOOK_SECONDS if until is None else min(_LOOK_SECONDS, until - monotonic())
            if left <= 0:
                return False
            active = [query for query in self._queries.values() if query.isActive]
            (active or list(self._queries.values()))[0]._await_end(left)  # noqa: SLF001 - a handle over handles
        return ended._await_end(None if until is None else max(0.0, until - monotonic()))  # noqa: SLF001

    def processAllAvailable(self) -> None:  # noqa: N802
        """Wait until everything that is in the streams now is finished; see ``SpoutQuery``."""
        for query in self._queries.values():
            query.processAllAvailable()

    def stop(self) -> None:
        """End all spouts, as ``SpoutQuery.stop``. Can be called twice.

        Raises:
            KinesisSpoutError: that of the first spout that could not store its last progress.
        """
        self._stopping.set()
        with ExitStack() as stopping:
            for query in self._queries.values():
                stopping.callback(query.stop)

    def __repr__(self) -> str:
        return f"TopologyQuery(name={self._name!r}, status={self.status['message']!r})"
