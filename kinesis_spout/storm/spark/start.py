"""Starts a topology: checks all of it, then starts a query for each of its spouts."""

import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from kinesis_spout.kinesis_spout import KinesisSpout
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.settings.spout_config import SpoutConfig
from kinesis_spout.spark.tasks.jobs import classic_context
from kinesis_spout.spark.tasks.task import TaskSettings
from kinesis_spout.storm.components.spout import Spout
from kinesis_spout.storm.graph.component_graph import ComponentSpec
from kinesis_spout.storm.graph.plan import context_of
from kinesis_spout.storm.hosting.processes.placement import placement_of
from kinesis_spout.storm.running.counts import added
from kinesis_spout.storm.running.program import SHELL_HOST, SHELL_PLACEMENT, SHELL_SPOUT, Program, program_of
from kinesis_spout.storm.spark.own_spout import OwnSpoutQuery
from kinesis_spout.storm.spark.runner import TopologyRunner
from kinesis_spout.storm.spark.topology_query import RunningSpout, TopologyQuery
from kinesis_spout.storm.spark.tree_delivery import SpoutValues
from kinesis_spout.storm.state.manifest import check_folder
from kinesis_spout.storm.state.versions import KeyedState
from kinesis_spout.storm.topology_conf import BuiltTopology, TopologyConf
from kinesis_spout.zookeeper.paths import check_name

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


_JOB_TIMEOUTS: Final = 3.0
"""A job may take this many message time-outs, as a tree's can be reset. A job that hangs longer is cancelled."""
_LEAST_JOB_SECONDS: Final = 60.0
"""A job may take this long in any case: its Python workers can need to start first. On a busy machine that takes
longer than three short time-outs; if cancelled, the job would start them again, until its records are given up."""


def check_runnable(topology: BuiltTopology) -> None:
    """Refuse what is a valid graph, but cannot run on Spark. Checked before anything starts.

    InvalidConfig: a spout delivers in an order that a topology cannot keep, state cannot be kept, or two
    spouts would share the shards of a stream.
    """
    for component in topology.graph.spouts:
        if isinstance(component.made_of, KinesisSpout):
            component.made_of.refuse_order("a topology")
    stateful = [name for name in topology.graph.order if topology.graph[name].is_stateful]
    if stateful:
        _check_state(topology, stateful)
    _check_apps(topology)


def _check_apps(topology: BuiltTopology) -> None:
    """Refuse spouts that are members of one application: each would emit the records of some shards only."""
    known: dict[tuple[str | None, ...], str] = {}
    for component in topology.graph.spouts:
        if isinstance(component.made_of, KinesisSpout):
            config = component.made_of.config
            of_stream = (config.stream, config.region, config.endpoint_url)
            application = (*of_stream, config.app, config.zookeeper, config.zookeeper_root)
            other = known.setdefault(application, component.name)
            if other != component.name:
                raise InvalidConfig(
                    f"topology {topology.name!r}: expected spouts that read streams, or have apps, of their own, "
                    f"as those of one app share its records, got {other!r} and {component.name!r} with stream "
                    f"{config.stream!r} and app {config.app!r}; have bolts subscribe to one spout, or give each "
                    "an app"
                )


def _check_state(topology: BuiltTopology, stateful: list[str]) -> None:
    where, spouts = f"topology {topology.name!r}", topology.graph.spouts
    if topology.options.state is None:
        raise InvalidConfig(
            f"{where}: expected the option state, an address for the state of {', '.join(stateful)}, got none; as "
            'in build(..., state="file:///var/lib/app/state")'
        )
    if topology.options.ackers == 0:
        raise InvalidConfig(
            f"{where}: expected trees that are tracked with the state of {stateful[0]!r}, got ackers=0: then it "
            "is unknown which records failed"
        )
    kept = f"as {stateful[0]!r} keeps state that is stored with the progress of its spout"
    if not isinstance(spouts[0].made_of, KinesisSpout):
        raise InvalidConfig(
            f"{where}: expected a KinesisSpout, {kept}, got {type(spouts[0].made_of).__name__}"
        )
    if len(spouts) > 1:
        raise InvalidConfig(f"{where}: expected one spout, {kept}, got {len(spouts)}")
    check_name("the topology's name, under which its state is stored,", topology.name)
    check_folder("topology", topology.name)
    for name in stateful:
        check_folder("bolt", name)


def start_topology(topology: BuiltTopology, spark: "SparkSession", name: str) -> TopologyQuery:
    context = classic_context(spark)
    check_runnable(topology)
    programs = programs_of(topology, context)
    state = _state(topology)
    started: dict[str, RunningSpout] = {}
    try:
        for component in topology.graph.spouts:
            program = programs[component.name]
            if isinstance(component.made_of, Spout):
                started[component.name] = _start_own(topology, component, program, context, name)
            else:
                started[component.name] = _start(topology, component, program, spark, name, state=state)
    except BaseException:
        for spout in started.values():
            spout.query.stop()
        raise
    query = TopologyQuery(topology, name, started)
    query.watch()
    for of_spout in query.spouts.values():
        of_spout.monitored.watch(query)
    return query


def programs_of(topology: BuiltTopology, context: "SparkContext") -> dict[str, Program]:
    run = f"{topology.name}-{uuid.uuid4()}"
    return {each.name: _program(topology, each, context, run) for each in topology.graph.spouts}


def _program(topology: BuiltTopology, component: ComponentSpec, context: "SparkContext", run: str) -> Program:
    started = {"storm.id": run, SHELL_HOST: context.applicationId, SHELL_SPOUT: component.name}
    program = program_of(topology, component.name, parallelism=context.defaultParallelism, started=started)
    program.check_travels()
    return _with_placement(topology, program, context)


def _with_placement(topology: BuiltTopology, program: Program, context: "SparkContext") -> Program:
    """With several machines, give bolts whose keys must find the same task again the address to ask for it."""
    having = [name for name in program.plan.exchanged if topology.graph[name].made_of.is_sticky]
    placement = placement_of(context) if having else None
    if placement is None:
        return program
    return replace(program, conf={**program.conf, SHELL_PLACEMENT: dict.fromkeys(having, placement.address)})


def _state(topology: BuiltTopology) -> KeyedState | None:
    parallelism = {each.name: each.parallelism for each in topology.graph if each.is_stateful}
    if not parallelism:
        return None
    assert topology.options.state is not None, "it was checked"
    return KeyedState(topology.name, topology.options.state, parallelism)


def _start_own(
    topology: BuiltTopology, component: ComponentSpec, program: Program, context: "SparkContext", name: str
) -> RunningSpout:
    options = topology.options
    query = OwnSpoutQuery(
        component.made_of,
        context_of(topology.graph, topology.name, component, 0, processing_time=time.time, read_to=time.time),
        context,
        program=program,
        streams=dict(component.streams),
        max_pending=options.max_spout_pending,
        job_timeout_seconds=_job_timeout_seconds(options),
        name=name,
    )
    query.start()
    return RunningSpout(query, lambda: query.counts)


def _job_timeout_seconds(options: TopologyConf) -> float:
    return max(_LEAST_JOB_SECONDS, _JOB_TIMEOUTS * options.message_timeout_seconds)


def _start(
    topology: BuiltTopology,
    component: ComponentSpec,
    program: Program,
    spark: "SparkSession",
    name: str,
    *,
    state: KeyedState | None,
) -> RunningSpout:
    spout = component.made_of
    fields = next(iter(component.streams.values())).fields
    runners: list[TopologyRunner] = []

    def runner(context: "SparkContext", settings: TaskSettings) -> TopologyRunner:
        made = TopologyRunner(
            context, settings, program=program, to_values=SpoutValues(spout.scheme, fields), state=state
        )
        runners.append(made)  # one for each stream
        return made

    config = config_of(topology, component, program)
    query = spout.start_batches(spark, runner, name, door="topology", config=config, companion=state)
    return RunningSpout(query, lambda: added(runner.counts for runner in runners))


def config_of(topology: BuiltTopology, component: ComponentSpec, program: Program) -> SpoutConfig:
    """The settings of a KinesisSpout, with what the topology adds.

    A process of a shell bolt serves one micro-batch at a time. Two micro-batches, each with a process that
    the other one needs next, would wait for each other until their tuples time out.
    """
    config: SpoutConfig = component.made_of.config
    reached = (topology.graph[name] for stage in program.plan.stages for name in stage)
    one_by_one = any(each.made_of.is_sticky for each in reached if not each.is_spout)
    return msgspec.structs.replace(
        config,
        message_timeout_seconds=_job_timeout_seconds(topology.options),
        max_concurrent_batches=1 if one_by_one else config.max_concurrent_batches,
    )
