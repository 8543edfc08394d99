"""A topology that was built: runs in this process for tests, on Spark for real."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kinesis_spout.storm.local import LocalResult, LocalTopology
from kinesis_spout.storm.multilang.protocol import DEFAULT_STREAM
from kinesis_spout.storm.picture import Explanation, mermaid
from kinesis_spout.storm.running.counts import ComponentCounts
from kinesis_spout.storm.running.program import Program, program_of
from kinesis_spout.storm.topology_conf import BuiltTopology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kinesis_spout.storm.spark.topology_query import TopologyQuery

_LOCAL_PARALLELISM = 4
"""Partitions without Spark, at most: enough to see whether keys stay together."""


class Topology(BuiltTopology):
    """A graph of components with its name and its options. Made by ``TopologyBuilder.build``."""

    def __repr__(self) -> str:
        return f"Topology({self.name!r}, {' > '.join(self.graph.order)})"

    def local(
        self, clock: Callable[[], float] | None = None, wall_clock: Callable[[], float] | None = None
    ) -> LocalTopology:
        """Give the topology as it runs in this process, micro-batch by micro-batch; for tests.

        Each task has its own copy of its bolt, as on Spark, so the object that was set stays as it is. The
        variables that a bolt's code names are shared, which they are not on Spark: a test can collect there.

        Args:
            clock: your function that gives the seconds since the epoch, for ticks, time-outs and
                windows; it never goes back. The machine's clocks unless given.
            wall_clock: what the machine's clock says, for tests that set it; ``clock`` unless given.
        """
        programs = {
            spout.name: program_of(self, spout.name, parallelism=_LOCAL_PARALLELISM).in_this_process(
                self.graph
            )
            for spout in self.graph.spouts
        }
        return LocalTopology(programs, clock, wall_clock)

    def run_local(
        self,
        tuples: Iterable[Sequence[Any]],
        *,
        spout: str | None = None,
        stream: str = DEFAULT_STREAM,
        clock: Callable[[], float] | None = None,
    ) -> LocalResult:
        """Run tuples as one micro-batch in this process, without Spark, and clean up; for tests.

        The spout itself is not asked for any: the tuples stand in for it.

        Args:
            tuples: the values of each, as the spout would emit them.
            spout: the spout of the tuples; needed if there are several.
            stream: of that spout.
            clock: see ``local``.

        Raises:
            InvalidConfig: no such spout or stream, or a tuple has another number of values than fields.
        """
        local = self.local(clock)
        try:
            return local.run(tuples, spout=spout, stream=stream)
        finally:
            local.close()

    def run(self, spark: "SparkSession", *, name: str | None = None) -> "TopologyQuery":
        """Start the topology on Spark.

        Args:
            spark: a classic session, best one from ``kinesis_spout.spark.session``.
            name: the query's; the topology's unless given.

        Returns:
            A handle like that of every other door; with several spouts it speaks for all of them.

        Raises:
            InvalidConfig: a spout is set up in a way that a topology cannot run; the error says which and why.
            KinesisSpoutError: what goes wrong at the start is raised here.
        """
        from kinesis_spout.storm.spark.start import start_topology  # noqa: PLC0415 - tests need no Spark

        return start_topology(self, spark, name or self.name)

    def explain(self) -> str:
        """Say in words how it runs: stages, components, groupings, exchanges, ackers, tasks of Spark.

        Nothing is run or opened. ``kinesis-spout topology explain`` prints this, and gives it as JSON.
        """
        return Explanation(self.name, self.graph, self.options).text()

    def mermaid(self, counts: Mapping[str, ComponentCounts] | None = None) -> str:
        """Draw it as a Mermaid flowchart, for Markdown.

        Args:
            counts: what its components have done, from ``TopologyQuery.components`` or
                ``LocalResult.counts``; written into their boxes.
        """
        return mermaid(self.graph, counts)

    def read_state(self, component: str) -> dict[Any, Any]:
        """Read the keyed state of a bolt as it is stored: every key with its value, all in memory.

        It has the effect of every record that is finished and committed by now, once. The topology need not run;
        while it runs, this is its state of a moment ago. Asks ZooKeeper, and reads the files at the address of
        the option ``state``.

        Args:
            component: a ``StatefulBolt``.

        Returns:
            An empty dictionary if nothing is stored.

        Raises:
            InvalidConfig: the bolt keeps no state, or the topology does not say where.
            StateUnreadable: the stored state is damaged or gone.
            StateUnavailable, StoreUnavailable: retriable.
        """
        from kinesis_spout.storm.stored_state import read_state  # noqa: PLC0415 - tests need no ZooKeeper

        return read_state(self, component)

    def _programs(self, parallelism: int) -> dict[str, Program]:
        return {
            spout.name: program_of(self, spout.name, parallelism=parallelism) for spout in self.graph.spouts
        }
