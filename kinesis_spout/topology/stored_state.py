"""Reads the keyed state of a topology as it is stored, from outside: nothing of the topology has to run."""

import pickle
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from kinesis_spout.consumer.open_ports import zookeeper_settings
from kinesis_spout.errors import InvalidConfig
from kinesis_spout.kinesis_spout import KinesisSpout
from kinesis_spout.topology.state import StateFiles, StateManifest, merged_rows

if TYPE_CHECKING:
    from kinesis_spout.topology.topology import Topology


def read_state(topology: "Topology", component: str) -> dict[Any, Any]:
    """Give every key of a bolt with its value. See ``Topology.read_state``."""
    address = _address(topology, component)
    stored = _stored_manifest(topology)
    manifest = None if stored is None else StateManifest.decode(stored)
    if manifest is None or component not in manifest.components:
        return {}
    files = StateFiles(address)
    found: dict[Any, Any] = {}
    for index in manifest.components[component].files:
        for key, value in merged_rows(files, manifest, component, index).items():
            found[key] = pickle.loads(value)  # noqa: S301 - written by the user's own bolt
    return found


def _address(topology: "Topology", component: str) -> str:
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


def _stored_manifest(topology: "Topology") -> bytes | None:
    (component,) = topology.graph.spouts
    spout = component.made_of
    if not isinstance(spout, KinesisSpout):
        raise InvalidConfig(
            f"spout {component.name!r}: expected a KinesisSpout, whose progress the state is stored with, got "
            f"{type(spout).__name__}"
        )
    with ExitStack() as opened:
        zookeeper = zookeeper_settings(spout.config)
        backend = zookeeper.connect(spout.config.stream_name, zookeeper.server(opened))
        opened.callback(backend.session.close)
        return backend.store.attached(topology.name)
