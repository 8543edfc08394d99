"""The handle on a running topology, shaped like PySpark's ``StreamingQuery``; ``start`` gives it."""

import logging
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, Self

from kinesis_spout.consumer.counters import Counters
from kinesis_spout.consumer.streams.joint_view import JointView, of_stream
from kinesis_spout.model.errors import InvalidConfig, KinesisSpoutError
from kinesis_spout.spark.driver.query import SpoutQuery
from kinesis_spout.storm.picture import mermaid, svg
from kinesis_spout.storm.running.counts import ComponentCounts, added
from kinesis_spout.storm.spark.own_spout import OwnSpoutQuery
from kinesis_spout.storm.topology_conf import BuiltTopology
from shard_state import BreakerPause, ShardStatus

_LOOK_SECONDS: Final = 0.05
_WATCH_SECONDS: Final = 0.5
"""How often it is looked for a spout that has ended with an error."""

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunningSpout:
    """One spout of a running topology."""

    query: SpoutQuery | OwnSpoutQuery
    counts: Callable[[], Mapping[str, ComponentCounts]]


@dataclass(frozen=True, slots=True)
class _Spouts:
    """The ``KinesisSpout``s, as a ``JointView`` looks at them."""

    current: Mapping[str, SpoutQuery]
    gone: Mapping[str, BaseException] = field(default_factory=dict)


class TopologyQuery:
    """One running topology. Its methods may be called from any thread.

    With several spouts each runs its own micro-batches through the graph, and this speaks for all of them.
    """

    def __init__(self, topology: BuiltTopology, name: str, spouts: Mapping[str, RunningSpout]) -> None:
        self._topology = topology
        self._name = name
        self._spouts = dict(spouts)
        self._run_id = str(uuid.uuid4())
        self._view = JointView(_Spouts(self.spouts), "spout")
        self._stopping = threading.Event()

    def watch(self) -> None:
        """Have all spouts end once one has ended with an error: then the query has ended, and may be run again."""
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
        _log.error("the topology %s ends, for one of its spouts has: %s", self._name, error)
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
    def runId(self) -> str:  # noqa: N802 - as StreamingQuery spells it
        """Another for every run."""
        return self._run_id

    @property
    def name(self) -> str:
        """The query's name: the topology's, unless another was given."""
        return self._name

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
        """Whether it runs: it was neither stopped nor ended by an error, nor have all spouts come to their end."""
        return self._ended is None

    @property
    def _ended(self) -> SpoutQuery | OwnSpoutQuery | None:
        """The spout whose end is the topology's, if it has ended; one that is done lets the others go on."""
        queries = list(self._queries.values())
        ended = [query for query in queries if not query.isActive]
        done = [query for query in ended if isinstance(query, SpoutQuery) and query.is_done]
        if len(done) == len(queries):
            return done[0]
        broken = [query for query in ended if query.exception() is not None]
        return next((query for query in (*broken, *ended) if query not in done), None)

    @property
    def status(self) -> dict[str, Any]:
        """What the topology is doing now, or how it ended; of several spouts, of one that ended or is busy."""
        if self._ended is not None:
            return self._ended.status
        running = [query.status for query in self._queries.values() if query.isActive]
        # One may have ended a moment ago.
        each = running or [query.status for query in self._queries.values()]
        return next((status for status in each if status["isTriggerActive"]), each[0])

    @property
    def is_done(self) -> bool:
        """Whether every spout has come up to its `until`; see ``SpoutQuery``. One of your own has no end."""
        return all(isinstance(query, SpoutQuery) and query.is_done for query in self._queries.values())

    @property
    def counters(self) -> Counters:
        """What happened since the start, of all spouts."""
        return Counters.total(query.counters for query in self._queries.values())

    @property
    def failures(self) -> dict[str, int]:
        """How often records failed with each kind of exception, by its type and the line that raised it."""
        return self._view.failures

    @property
    def last_error(self) -> KinesisSpoutError | None:
        """An error that is being retried, of any spout."""
        error = self._view.last_error
        return error if isinstance(error, KinesisSpoutError) else None

    @property
    def breaker_pause(self) -> BreakerPause | None:
        """Why deliveries pause, of the first spout whose do; None while none does."""
        return self._view.breaker_pause

    def resume(self) -> bool:
        """End the pauses of all spouts now; False if there is none."""
        return self._view.resume()

    def pause_shards(self, *shard_ids: str) -> None:
        """Pause shards for all members of the application, as an operator does; all shards if none is named.

        See ``SpoutQuery``. With several spouts a shard is named as ``spout/shardId``.
        """
        if self._only is not None:
            self._only.pause_shards(*shard_ids)
        else:
            self._view.pause_shards(shard_ids)

    def resume_shards(self, *shard_ids: str) -> bool:
        """End such pauses; see ``pause_shards``."""
        if self._only is not None:
            return self._only.resume_shards(*shard_ids)
        return self._view.resume_shards(shard_ids)

    @property
    def paused_by_operator(self) -> str | None:
        """What an operator has paused of the first spout of which something is; None if nothing."""
        said = (query.paused_by_operator for query in self.spouts.values())
        return next((text for text in said if text is not None), None)

    @property
    def paused_shards(self) -> frozenset[str]:
        """The shards that an operator has paused; see ``pause_shards`` for their names."""
        return self._view.paused_shards if self._only is None else self._only.paused_shards

    def shards(self) -> list[ShardStatus]:
        """Every known shard, parents before children; see ``pause_shards`` for their names."""
        if self._only is not None:
            return self._only.shards()
        return [shard for name, query in self.spouts.items() for shard in of_stream(name, query.shards())]

    @property
    def _only(self) -> SpoutQuery | None:
        """The ``KinesisSpout``, if there is one and not several: its shards need no other names."""
        queries = list(self.spouts.values())
        return queries[0] if len(queries) == 1 else None

    def mermaid(self) -> str:
        """Draw the topology with the components' counts as they are now; see ``Topology.mermaid``."""
        return mermaid(self._topology.graph, self.components)

    def svg(self) -> str:
        """Draw the topology with the components' counts as they are now; see ``Topology.svg``."""
        return svg(self._topology.graph, self.components, title=self._topology.name)

    @property
    def components(self) -> dict[str, ComponentCounts]:
        """What each component has done since the start, in the order of the flow.

        Executed, emitted, acked, failed, timed out, latency; of a spout, the tuples that it emitted. Latencies are
        those of the last ten minutes.
        """
        counts = added(spout.counts() for spout in self._spouts.values())
        return {name: counts.get(name, ComponentCounts()) for name in self._topology.graph.order}

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802
        """The progress of the newest micro-batch, with the components' totals; None before the first."""
        progress = self.recentProgress
        return progress[-1] if progress else None

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

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802
        """Wait until the topology ends: with the first of its spouts that does, or with the last that is done.

        See ``SpoutQuery``.
        """
        if timeout is not None and timeout <= 0:
            raise InvalidConfig(f"expected a timeout of more than 0 seconds, got {timeout!r}")
        until = None if timeout is None else monotonic() + timeout
        while True:
            for query in self._queries.values():
                left = _LOOK_SECONDS if until is None else min(_LOOK_SECONDS, until - monotonic())
                if query.awaitTermination(max(0.001, left)) and self._ended is not None:
                    error = self.exception()  # Of another one: then this one was stopped.
                    if error is not None:
                        raise error
                    return None if timeout is None else True
            if until is not None and monotonic() >= until:
                return False

    def processAllAvailable(self) -> None:  # noqa: N802
        """Wait until everything that is in the streams now is finished; see ``SpoutQuery``."""
        for query in self._queries.values():
            query.processAllAvailable()

    def stop(self) -> None:
        """End all spouts, as ``SpoutQuery.stop``. May be called twice.

        Raises:
            KinesisSpoutError: what the first of them that could not store its last progress raised.
        """
        self._stopping.set()
        with ExitStack() as stopping:
            for query in self._queries.values():
                stopping.callback(query.stop)

    def __repr__(self) -> str:
        return f"TopologyQuery(name={self._name!r}, status={self.status['message']!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
