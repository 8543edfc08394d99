"""What a topology must be to run on Spark, beyond what makes it a valid graph. Checked before anything starts."""

from kinesis_spout.kinesis_spout import KinesisSpout
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.storm.built_topology import BuiltTopology
from kinesis_spout.storm.state import check_folder
from kinesis_spout.zookeeper.paths import check_name


def check_runnable(topology: BuiltTopology) -> None:
    """Refuse a topology that cannot run.

    Raises:
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
            f"{where}: expected ackers with the state of {stateful[0]!r}, got none: without them nobody knows "
            "which records failed"
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
