"""``TopologyBuilder``: sets spouts and bolts, wires them, checks the whole."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.model.unfinished_work import refuse_unfinished_function
from kinesis_spout.storm.components.bolt import Bolt, CombinerBolt, StatefulBolt
from kinesis_spout.storm.components.spout import Spout
from kinesis_spout.storm.components.tuples import OutputFields, are_field_names, declared_streams
from kinesis_spout.storm.components.windowed_bolt import WindowedBolt, windows_of
from kinesis_spout.storm.graph.component_graph import ComponentGraph, ComponentInput, ComponentSpec
from kinesis_spout.storm.graph.grouping import CustomGrouping, Grouping, GroupingKind
from kinesis_spout.storm.graph.plan import plan_of
from kinesis_spout.storm.multilang.protocol import DEFAULT_STREAM
from kinesis_spout.storm.topology_conf import MOST_TASKS, TopologyConf

if TYPE_CHECKING:
    from kinesis_spout.kinesis_spout import KinesisSpout
    from kinesis_spout.storm.topology import Topology

_DEFAULT_SPOUT_FIELDS = ("record",)
_OPTIONS: Final = {
    "topology.acker.executors": "the option ackers of build",
    "topology.max.spout.pending": "the option max_spout_pending of build, or max_pending of a KinesisSpout,",
    "topology.message.timeout.secs": "the option message_timeout_seconds of build",
    "topology.multilang.serializer": "serializer of a ShellBolt",
    "topology.shellbolt.max.pending": "max_pending of a ShellBolt",
    "topology.subprocess.timeout.secs": "timeout_seconds of a ShellBolt",
    "topology.tick.tuple.freq.secs": "tick_seconds of a bolt",
    "topology.workers": "the option partitions of build",
}
"""Keys that Storm itself reads from a configuration, and what does the same here."""
_METHODS: Final = (
    *("execute", "process", "process_batch", "execute_window", "late", "flush"),
    *("next_tuple", "activate", "deactivate", "ack", "fail", "timed_out"),
)
"""The methods in which a component does its work."""


class BoltDeclarer:
    """Says where the tuples of a bolt come from; each call adds a subscription. Mutable."""

    def __init__(self) -> None:
        self.inputs: list[ComponentInput] = []

    def shuffle_grouping(self, component: str, stream: str = DEFAULT_STREAM) -> Self:
        """Any task gets a tuple: the one at hand, without a copy, where that is possible.

        The bolt then runs as often as its source does, whatever its parallelism: see ``rebalance_grouping``.
        """
        return self._add(component, stream, Grouping(kind=GroupingKind.SHUFFLE))

    def local_or_shuffle_grouping(self, component: str, stream: str = DEFAULT_STREAM) -> Self:
        """Any task gets a tuple, as in ``shuffle_grouping``."""
        return self._add(component, stream, Grouping(kind=GroupingKind.LOCAL_OR_SHUFFLE))

    def none_grouping(self, component: str, stream: str = DEFAULT_STREAM) -> Self:
        """It does not matter which task gets a tuple, as in ``shuffle_grouping``."""
        return self._add(component, stream, Grouping(kind=GroupingKind.NONE))

    def rebalance_grouping(self, component: str, stream: str = DEFAULT_STREAM) -> Self:
        """All tasks get tuples in turn, by an exchange: for a bolt whose work costs more than that.

        The tuples keep no order, not even those of one record.
        """
        return self._add(component, stream, Grouping(kind=GroupingKind.REBALANCE))

    def fields_grouping(self, component: str, fields: Sequence[str], stream: str = DEFAULT_STREAM) -> Self:
        """Tuples with the same values of these fields go to the same task, also after a restart."""
        return self._add(component, stream, _by_fields(GroupingKind.FIELDS, fields))

    def partial_key_grouping(
        self, component: str, fields: Sequence[str], stream: str = DEFAULT_STREAM
    ) -> Self:
        """Tuples with the same values of these fields go to one of two tasks, the one that got less so far."""
        return self._add(component, stream, _by_fields(GroupingKind.PARTIAL_KEY, fields))

    def all_grouping(self, component: str, stream: str = DEFAULT_STREAM) -> Self:
        """Every task gets every tuple."""
        return self._add(component, stream, Grouping(kind=GroupingKind.ALL))

    def global_grouping(self, component: str, stream: str = DEFAULT_STREAM) -> Self:
        """The task with the lowest id gets every tuple."""
        return self._add(component, stream, Grouping(kind=GroupingKind.GLOBAL))

    def direct_grouping(self, component: str, stream: str = DEFAULT_STREAM) -> Self:
        """The task gets a tuple that ``emit_direct`` names. The stream must be declared as direct."""
        return self._add(component, stream, Grouping(kind=GroupingKind.DIRECT))

    def custom_grouping(self, component: str, grouping: CustomGrouping, stream: str = DEFAULT_STREAM) -> Self:
        """Your own grouping chooses the tasks.

        Raises:
            InvalidConfig: it is a class, or has no ``choose_tasks``.
        """
        if isinstance(grouping, type) or not callable(getattr(grouping, "choose_tasks", None)):
            raise InvalidConfig(
                f"expected a custom grouping with choose_tasks(tasks, values), got {_kind(grouping)}"
            )
        return self._add(component, stream, Grouping(kind=GroupingKind.CUSTOM, custom=grouping))

    def _add(self, component: str, stream: str, grouping: Grouping) -> Self:
        if not isinstance(component, str) or not isinstance(stream, str):
            raise InvalidConfig(
                "expected the id of a component, and of a stream of it unless that is the default one, got "
                f"{component!r}, {stream!r}"
            )
        self.inputs.append(ComponentInput(component=component, stream=stream, grouping=grouping))
        return self


class TopologyBuilder:
    """Collects spouts and bolts, by unique ids, and makes a topology of them. Mutable."""

    def __init__(self) -> None:
        self._components: dict[str, Callable[[], ComponentSpec]] = {}
        self._own_spouts: dict[str, Spout] = {}

    def set_spout(
        self,
        name: str,
        spout: "KinesisSpout | Spout",
        *,
        fields: Sequence[str] = _DEFAULT_SPOUT_FIELDS,
        conf: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a spout.

        Args:
            name: its id.
            spout: a ``KinesisSpout``, not opened, or your own ``Spout``.
            fields: of a ``KinesisSpout``: the names of what its scheme makes of a record; one value, or as
                many in a sequence (in a mapping: by these keys). A ``Spout`` declares its own.
            conf: of this component, over the topology's.

        Raises:
            InvalidConfig: the id is taken, this is no spout, a ``Spout`` has another id already or a method
                that is a generator function or an ``async def``, the fields of a ``KinesisSpout`` are no names,
                or fields are given for a ``Spout``.
        """
        streams = _streams_of(name, spout, fields)
        _refuse_unfinished_methods(f"spout {name!r}", spout)
        own_conf = _conf(f"spout {name!r}", conf)
        other = next((other for other, each in self._own_spouts.items() if each is spout), name)
        if other != name:
            raise InvalidConfig(
                f"spout {name!r}: expected a spout of its own, got the {type(spout).__name__} that is the spout "
                f"{other!r}, too: each is opened and asked separately; make two"
            )

        def component() -> ComponentSpec:
            return ComponentSpec(
                name=name,
                made_of=spout,
                is_spout=True,
                parallelism=1,
                streams=declared_streams(name, streams),
                conf=own_conf,
            )

        self._set(name, component)
        if isinstance(spout, Spout):
            self._own_spouts[name] = spout

    def set_bolt(
        self, name: str, bolt: Bolt, parallelism: int = 1, *, conf: Mapping[str, Any] | None = None
    ) -> BoltDeclarer:
        """Add a bolt.

        Args:
            name: its id.
            bolt: pickled; each of its tasks gets its own copy.
            parallelism: how many tasks it has; they share its keys, or its tuples. A bolt that stays with its
                source (``shuffle_grouping``) runs as often as that does, whatever its parallelism is.
            conf: of this component, over the topology's.

        Returns:
            Declares the sources of its tuples.

        Raises:
            InvalidConfig: the id is taken, this is no bolt, a method of it is a generator function or an
                ``async def``, the parallelism is below 1 or too large, the bolt's
                ``tick_seconds`` are negative, or its windows are not as ``WindowedBolt`` says.
        """
        if not isinstance(bolt, Bolt):
            raise InvalidConfig(
                f"bolt {name!r}: expected a Bolt (one of pystorm or streamparse goes into a ShellBolt), got "
                f"{_kind(bolt)}"
            )
        _refuse_unfinished_methods(f"bolt {name!r}", bolt)
        is_number = isinstance(parallelism, int) and not isinstance(parallelism, bool)
        if not is_number or not 1 <= parallelism <= MOST_TASKS:
            raise InvalidConfig(
                f"bolt {name!r}: expected a parallelism of 1 or more, at most {MOST_TASKS:,}, got {parallelism!r}"
            )
        every = bolt.tick_seconds
        if every is not None and (not isinstance(every, (int, float)) or not every >= 0):
            raise InvalidConfig(f"bolt {name!r}: expected tick_seconds of 0 or more, or None, got {every!r}")
        if isinstance(bolt, WindowedBolt):
            windows_of(bolt, name)
        declarer, own_conf = BoltDeclarer(), _conf(f"bolt {name!r}", conf)

        def component() -> ComponentSpec:
            return ComponentSpec(
                name=name,
                made_of=bolt,
                is_spout=False,
                parallelism=parallelism,
                streams=declared_streams(name, _declared(name, bolt)),
                conf=own_conf,
                inputs=tuple(declarer.inputs),
                is_stateful=isinstance(bolt, StatefulBolt),
                needs=bolt.needs if isinstance(bolt, CombinerBolt) else (),
            )

        self._set(name, component)
        return declarer

    def graph(self) -> ComponentGraph:
        """Check everything, and give the graph.

        Raises:
            InvalidConfig: see ``ComponentGraph``.
        """
        return ComponentGraph({name: make() for name, make in self._components.items()})

    def build(
        self, name: str = "topology", *, conf: Mapping[str, Any] | None = None, **options: Any
    ) -> "Topology":
        """Make the topology.

        Args:
            name: shown in Spark's pages, in progress and logs; with a stateful bolt it names the state, too.
            conf: what components get in ``prepare`` and ``open``, unchanged.
            options: see ``TopologyConf``.

        Raises:
            InvalidConfig: the name or the conf is invalid; and see ``ComponentGraph``, ``plan_of`` and
                ``TopologyConf``.
        """
        from kinesis_spout.storm.topology import Topology  # noqa: PLC0415 - the wiring itself needs no runner

        if not isinstance(name, str) or not name:
            raise InvalidConfig(f"expected a name for the topology, got {name!r}")
        graph = self.graph()
        for spout in graph.spouts:
            plan_of(graph, spout.name)
        return Topology(name, graph, TopologyConf.of(options), _conf("topology", conf))

    def _set(self, name: str, component: Callable[[], ComponentSpec]) -> None:
        if not isinstance(name, str) or not name or name.startswith("__"):
            raise InvalidConfig(f"expected an id for a component, not beginning with __, got {name!r}")
        if name in self._components:
            raise InvalidConfig(f"expected ids that are unique, got {name!r} for a second component")
        self._components[name] = component


def _streams_of(name: str, spout: object, fields: Sequence[str]) -> OutputFields:
    from kinesis_spout.kinesis_spout import KinesisSpout  # noqa: PLC0415 - the wiring itself needs no AWS

    if isinstance(spout, Spout):
        if fields is not _DEFAULT_SPOUT_FIELDS:
            raise InvalidConfig(
                f"spout {name!r}: expected fields only for a KinesisSpout, got {fields!r}; a Spout of your "
                "own names them in declare_output_fields"
            )
        return _declared(name, spout)
    if not isinstance(spout, KinesisSpout):
        raise InvalidConfig(
            f"spout {name!r}: expected a KinesisSpout or a Spout of your own, a subclass of "
            f"kinesis_spout.storm.Spout, got {_kind(spout)}"
        )
    if not fields or not are_field_names(fields):
        raise InvalidConfig(
            f"spout {name!r}: expected the names of what its scheme makes of a record, as in "
            f'fields=["line"], got {fields!r}'
        )
    return fields


def _declared(name: str, made_of: Bolt | Spout) -> OutputFields:
    try:
        return made_of.declare_output_fields()
    except Exception as error:
        error.add_note(f"raised by declare_output_fields of component {name!r}")
        raise


def _by_fields(kind: GroupingKind, fields: Sequence[str]) -> Grouping:
    if not fields or not are_field_names(fields):
        raise InvalidConfig(f'expected the fields to group by, as in ["word"], got {fields!r}')
    return Grouping(kind=kind, fields=tuple(fields))


def _conf(where: str, conf: object) -> dict[str, Any]:
    if conf is None:
        return {}
    if not isinstance(conf, Mapping):
        raise InvalidConfig(f'{where}: expected a mapping as in conf={{"name": value}}, got {conf!r}')
    for of_storm, here in _OPTIONS.items():
        if of_storm in conf:
            raise InvalidConfig(
                f"{where}: conf: expected {here} in place of {of_storm!r}, which would change nothing here"
            )
    return dict(conf)


def _refuse_unfinished_methods(where: str, component: object) -> None:
    for method in _METHODS:
        work = getattr(component, method, None)
        if callable(work):  # A component may have data of that name: `late` is nothing to a spout.
            refuse_unfinished_function(f"{where}: {method}", work)


def _kind(given: object) -> str:
    if isinstance(given, type):
        return f"the class {given.__name__}, not an object of it"
    return type(given).__name__
