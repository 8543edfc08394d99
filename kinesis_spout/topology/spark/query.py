"""A running topology: how it is started, and the handle on it, shaped like PySpark's ``StreamingQuery``."""

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from kinesis_spout.spark.driver.query import SpoutQuery
from kinesis_spout.spark.tasks.jobs import classic_context
from kinesis_spout.spark.tasks.task import TaskSettings
from kinesis_spout.topology.components.spout import Spout
from kinesis_spout.topology.graph.component_graph import Component
from kinesis_spout.topology.graph.plan import context_of
from kinesis_spout.topology.homes import homes_of
from kinesis_spout.topology.runnable import check_runnable
from kinesis_spout.topology.running.component_counts import ComponentCounts
from kinesis_spout.topology.running.program import SHELL_HOMES, SHELL_HOST, Program, program_of
from kinesis_spout.topology.spark.keyed_state import KeyedState
from kinesis_spout.topology.spark.own_spout import OwnSpoutQuery
from kinesis_spout.topology.spark.runner import TopologyRunner
from kinesis_spout.topology.spark.spout_values import SpoutValues
from shard_state import Pause

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from kinesis_spout.topology.topology import Topology

_JOB_TIMEOUTS: Final = 3.0
"""A job may take so many message time-outs, for a tree's may be reset. What hangs longer is cancelled."""
_LOOK_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class RunningSpout:
    """One spout of a running topology."""

    query: SpoutQuery | OwnSpoutQuery
    counts: Callable[[], Mapping[str, ComponentCounts]]


class TopologyQuery:
    """One running topology. Its methods may be called from any thread.

    With several spouts each runs its own micro-batches through the graph, and this speaks for all of them.
    """

    def __init__(self, topology: "Topology", name: str, spouts: Mapping[str, RunningSpout]) -> None:
        self._topology = topology
        self._name = name
        self._spouts = dict(spouts)
        self._run_id = str(uuid.uuid4())

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
        return next((query for query in ended if query not in done), None)

    @property
    def status(self) -> dict[str, Any]:
        """What the topology is doing now, or how it ended; of several spouts, of one that has ended."""
        return (self._ended or next(iter(self._queries.values()))).status

    @property
    def pause(self) -> Pause | None:
        """Why deliveries pause, of the first spout whose do; None while none does."""
        return next((query.pause for query in self._queries.values() if query.pause is not None), None)

    def mermaid(self) -> str:
        """Draw the topology with the components' counts as they are now; see ``Topology.mermaid``."""
        return self._topology.mermaid(self.components)

    def svg(self) -> str:
        """Draw the topology with the components' counts as they are now; see ``Topology.svg``."""
        return self._topology.svg(self.components)

    @property
    def components(self) -> dict[str, ComponentCounts]:
        """What each component has done since the start, in the order of the flow.

        Executed, emitted, acked, failed, timed out, latency; of a spout, the tuples that it emitted.
        """
        counts = _added(spout.counts() for spout in self._spouts.values())
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
        """Wait until the topology ends: with the first of its spouts that does, or with the last that is done."""
        until = None if timeout is None else monotonic() + timeout
        while True:
            for query in self._queries.values():
                left = _LOOK_SECONDS if until is None else min(_LOOK_SECONDS, until - monotonic())
                if query.awaitTermination(max(0.001, left)) and self._ended is not None:
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
        with ExitStack() as stopping:
            for query in self._queries.values():
                stopping.callback(query.stop)

    def __repr__(self) -> str:
        return f"TopologyQuery(name={self._name!r}, status={self.status['message']!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start_topology(topology: "Topology", spark: "SparkSession", name: str) -> TopologyQuery:
    """Start every spout of a topology. See ``Topology.run``."""
    context = classic_context(spark)
    check_runnable(topology)
    started: dict[str, RunningSpout] = {}
    try:
        for component in topology.graph.spouts:
            started[component.name] = _start(topology, component, spark, context, name)
    except BaseException:
        for spout in started.values():
            spout.query.stop()
        raise
    return TopologyQuery(topology, name, started)


def _state(topology: "Topology", program: Program) -> KeyedState | None:
    if not program.stateful:
        return None
    assert topology.options.state is not None, "it was checked"
    parallelism = {component: topology.graph[component].parallelism for component in program.stateful}
    return KeyedState(topology.name, topology.options.state, parallelism)


def _with_homes(topology: "Topology", program: Program, context: "SparkContext") -> Program:
    """Tell bolts whose keys must find the same task again where to ask for its machine, if there are several."""
    having = [name for name in program.plan.exchanged if topology.graph[name].made_of.has_home]
    homes = homes_of(context) if having else None
    if homes is None:
        return program
    return replace(program, conf={**program.conf, SHELL_HOMES: dict.fromkeys(having, homes.address)})


def _start_own(
    topology: "Topology", component: Component, context: "SparkContext", program: Program, name: str
) -> RunningSpout:
    options = topology.options
    query = OwnSpoutQuery(
        component.made_of,
        context_of(topology.graph, topology.name, component, 0, time.time),
        context,
        program=program,
        streams=dict(component.streams),
        max_pending=options.max_spout_pending,
        job_timeout_seconds=_JOB_TIMEOUTS * options.message_timeout_seconds,
        name=name,
    )
    query.start()
    return RunningSpout(query, lambda: query.counts)


def _start(
    topology: "Topology", component: Component, spark: "SparkSession", context: "SparkContext", name: str
) -> RunningSpout:
    options = topology.options
    started = {"storm.id": f"{topology.name}-{uuid.uuid4()}", SHELL_HOST: context.applicationId}
    program = program_of(
        topology.name,
        topology.graph,
        component.name,
        options=options,
        conf={**started, **topology.conf},
        parallelism=context.defaultParallelism,
    )
    program = _with_homes(topology, program, context)
    state = _state(topology, program)
    spout = component.made_of
    if isinstance(spout, Spout):
        return _start_own(topology, component, context, program, name)
    config = msgspec.structs.replace(
        spout.config, message_timeout_seconds=_JOB_TIMEOUTS * options.message_timeout_seconds
    )
    fields = next(iter(component.streams.values())).fields
    runners: list[TopologyRunner] = []

    def runner(context: "SparkContext", settings: TaskSettings) -> TopologyRunner:
        made = TopologyRunner(
            context, settings, program=program, to_values=SpoutValues(spout.scheme, fields), state=state
        )
        runners.append(made)  # one for each stream
        return made

    query = spout.start_batches(spark, runner, name, door="topology", config=config, companion=state)
    return RunningSpout(query, lambda: _added(runner.counts for runner in runners))


def _added(counts: Iterable[Mapping[str, ComponentCounts]]) -> dict[str, ComponentCounts]:
    together: dict[str, ComponentCounts] = defaultdict(ComponentCounts)
    for each in counts:
        for component, of_component in each.items():
            together[component].add(of_component)
    return dict(together)
