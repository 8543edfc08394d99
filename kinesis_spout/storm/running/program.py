"""A topology as every process of it needs it, seen from one spout: the plan, the options, the pickled bolts."""

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from io import BytesIO
from types import FunctionType, ModuleType
from typing import Any, Final

from pyspark import cloudpickle

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.storm.components.bolt import Bolt
from kinesis_spout.storm.components.windowed_bolt import ticks_every
from kinesis_spout.storm.graph.component_graph import ComponentGraph
from kinesis_spout.storm.graph.plan import Plan, plan_of
from kinesis_spout.storm.topology_conf import BuiltTopology

SHELL_HOST: Final = "kinesis_spout.shell.host"
"""In the conf: an id such as Spark's of the application; topologies with the same one share the shell processes of
each machine. Without it each Python process owns those of its own shell bolts, and they end with it."""
SHELL_PLACEMENT: Final = "kinesis_spout.shell.placement"
"""In the conf: where to ask on which machine a process is, by component: a ``PlacementAddress`` for
each whose tuples come by an exchange. Without it a task has its process on the machine where it runs."""
SHELL_SPOUT: Final = "kinesis_spout.shell.spout"
"""In the conf: the spout whose tuples a component gets. Each spout has its own bolts, and processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A topology that runs. Picklable."""

    topology: str
    graph: ComponentGraph
    """Without the user's objects."""
    plan: Plan
    conf: Mapping[str, Any]
    bolts: Mapping[str, bytes] = field(repr=False)
    timeout_seconds: float
    ticks: Mapping[str, float]
    """Seconds between the ticks of each component that wants ticks; 0: one in every micro-batch."""
    partitions: int
    """The number of partitions of an exchange."""
    ackers: int = 0
    """The number of ackers that share the trees. 0: a tree is complete unless a task reports it."""
    is_tracked: bool = True
    """True if a spout's tuple has a tree; otherwise it is acked at once."""
    is_exact: bool = True
    """True if a tree that fails leaves no trace in the state."""
    is_careful: bool = False
    """True if all bolts are in one stage, in one process: see ``groups``."""

    def carefully(self) -> "Program":
        return replace(self, plan=self.plan.in_one_stage(), partitions=1, is_careful=True)

    def conf_of(self, component: str) -> dict[str, Any]:
        """The topology's conf, with the component's own over it."""
        return {**self.conf, **self.graph[component].conf}

    def check_travels(self) -> None:
        _pickled("the conf of the topology", self.conf)
        for component in self.graph:
            _pickled(f"the conf of {component.name!r}", component.conf)
            for subscription in component.inputs:
                _pickled(f"bolt {component.name!r}, its custom grouping", subscription.grouping.custom)

    def new_bolt(self, component: str) -> Bolt:
        bolt: Bolt = cloudpickle.loads(self.bolts[component])
        return bolt

    def in_this_process(self, graph: ComponentGraph) -> "Program":
        """Give the program whose bolts are copies of those in the graph, but share their classes and functions.

        The program sees the test's own objects, such as lists at the top of its script; they do not travel.
        """
        return _ProgramHere(**{each.name: getattr(self, each.name) for each in fields(self)}, objects=graph)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProgramHere(Program):
    objects: ComponentGraph

    def new_bolt(self, component: str) -> Bolt:
        file = BytesIO()
        pickler = _ByReference(file)
        pickler.dump(self.objects[component].made_of)  # type: ignore[no-untyped-call]
        file.seek(0)
        bolt: Bolt = _WithKept(file, pickler.kept).load()
        return bolt


class _ByReference(cloudpickle.Pickler):
    """Pickles an object for its own process: the classes, functions and modules in it stay the same."""

    def __init__(self, file: BytesIO) -> None:
        super().__init__(file)  # type: ignore[no-untyped-call]
        self.kept: list[object] = []

    def persistent_id(self, found: object) -> int | None:
        if not isinstance(found, (type, FunctionType, ModuleType)):
            return None
        self.kept.append(found)
        return len(self.kept) - 1


class _WithKept(pickle.Unpickler):
    def __init__(self, file: BytesIO, kept: Sequence[object]) -> None:
        super().__init__(file)
        self._kept = kept

    def persistent_load(self, pid: int) -> object:
        return self._kept[pid]


def program_of(
    topology: BuiltTopology, spout: str, *, parallelism: int, started: Mapping[str, Any] | None = None
) -> Program:
    """Make the program of one of a topology's spouts.

    ``parallelism``: how many tasks Spark runs at a time. ``started`` is added to the components' conf at this
    start.
    """
    graph, options = topology.graph, topology.options
    plan = plan_of(graph, spout)
    bolts = {name: graph[name].made_of for name in plan.stage_of if name != spout}
    ticks = {name: ticks_every(bolt) for name, bolt in bolts.items()}
    partitions = options.partitions or max(1, min(plan.most_tasks(graph), parallelism))
    return Program(
        topology=topology.name,
        graph=graph.without_objects(),
        plan=plan,
        conf={
            "topology.name": topology.name,
            "topology.message.timeout.secs": options.message_timeout_seconds,
            **(started or {}),
            **topology.conf,
        },
        bolts={name: _pickled(f"bolt {name!r}", bolt) for name, bolt in bolts.items()},
        timeout_seconds=options.message_timeout_seconds,
        ticks={name: every for name, every in ticks.items() if every is not None},
        partitions=partitions,
        ackers=options.ackers or 0,
        is_tracked=options.ackers != 0,
        is_exact=options.state_guarantee == "exactly_once",
    )


def _pickled(what: str, made: object) -> bytes:
    try:
        pickled: bytes = cloudpickle.dumps(made)  # type: ignore[no-untyped-call]
    except Exception as error:
        raise InvalidConfig(
            f"{what}: expected an object that can be pickled, got {type(error).__name__}: {error}; "
            "open connections and files in prepare, not in __init__"
        ) from error
    return pickled
