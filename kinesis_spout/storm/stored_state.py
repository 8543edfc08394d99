"""Reads the keyed state of a topology as it is stored, from outside: nothing of the topology has to run."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from kinesis_spout.consumer.open_ports import zookeeper_settings
from kinesis_spout.kinesis_spout import KinesisSpout
from kinesis_spout.model.errors import InvalidConfig, StateUnreadable
from kinesis_spout.storm.state.files import StateFiles, merged_rows
from kinesis_spout.storm.state.key_values import ResultKey, read_value
from kinesis_spout.storm.state.manifest import StateManifest
from kinesis_spout.storm.topology_conf import BuiltTopology

_MOST_READS: Final = 3
"""A running topology deletes files that it has replaced: then its newer state is read, this often at most."""


def read_state(topology: BuiltTopology, component: str) -> dict[Any, Any]:
    """See ``Topology.read_state``."""
    files = StateFiles(_address(topology, component))
    with _attached(topology) as stored_now:
        pickled = _pickled_values(files, stored_now, component, stored_now())
    return {key: read_value(key, value) for key, value in pickled.items() if type(key) is not ResultKey}


def _pickled_values(
    files: StateFiles,
    stored_now: Callable[[], bytes | None],
    component: str,
    stored: bytes | None,
    reads: int = 1,
) -> dict[Any, bytes]:
    manifest = None if stored is None else StateManifest.decode(stored)
    if manifest is None or component not in manifest.components:
        return {}
    found: dict[Any, bytes] = {}
    try:
        for index in manifest.components[component].files:
            found.update(merged_rows(files, manifest, component, index))
    except StateUnreadable:
        newer = stored_now()
        if newer == stored or reads == _MOST_READS:
            raise
        return _pickled_values(files, stored_now, component, newer, reads + 1)
    return found


def _address(topology: BuiltTopology, component: str) -> str:
    stateful = [each for each in topology.graph.order if topology.graph[each].is_stateful]
    if component not in stateful:
        raise InvalidConfig(
            f"topology {topology.name!r}: expected a bolt that keeps state "
            f"({', '.join(stateful) or 'it has none'}), got {component!r}"
        )
    if topology.options.state is None:
        raise InvalidConfig(
            f"topology {topology.name!r}: expected the option state, the address that it runs with, got none"
        )
    return topology.options.state


@contextmanager
def _attached(topology: BuiltTopology) -> Iterator[Callable[[], bytes | None]]:
    spouts = topology.graph.spouts
    spout = spouts[0].made_of
    if len(spouts) > 1 or not isinstance(spout, KinesisSpout):
        raise InvalidConfig(
            f"topology {topology.name!r}: expected one KinesisSpout, whose progress the state is stored with, got "
            f"{', '.join(f'{each.name!r} ({type(each.made_of).__name__})' for each in spouts)}"
        )
    with ExitStack() as opened:
        zookeeper = zookeeper_settings(spout.config)
        backend = zookeeper.connect(spout.config.stream_name, zookeeper.server(opened))
        opened.callback(backend.session.close)
        yield lambda: backend.store.attached(topology.name)
