"""A topology's graph: its components, their streams, and the subscriptions. Checked when it is made."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.storm.components.tuples import Stream, names_of
from kinesis_spout.storm.graph.grouping import Grouping, GroupingKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentInput:
    component: str
    stream: str
    grouping: Grouping


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentSpec:
    name: str
    made_of: Any
    is_spout: bool
    parallelism: int
    streams: Mapping[str, Stream]
    conf: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[ComponentInput, ...] = ()
    is_stateful: bool = False
    needs: tuple[str, ...] = ()
    """Fields that every stream must have that it subscribes to."""


class ComponentGraph:
    """The checked graph. Its components come in the order of the flow: each after those it subscribes to.

    InvalidConfig: no spout, a bolt without inputs or with two for one stream, a subscription to what is not
    there, a stream without a needed field, a grouping that does not fit the stream, state without a fields
    grouping, a cycle. It names component, stream and field.
    """

    def __init__(self, components: Mapping[str, ComponentSpec]) -> None:
        self._components = dict(components)
        if not any(component.is_spout for component in components.values()):
            raise InvalidConfig("expected a topology with a spout, got none: call set_spout first")
        for component in components.values():
            for subscription in component.inputs:
                self._check(component, subscription)
            _check_once(component)
            if not component.is_spout and not component.inputs:
                raise InvalidConfig(
                    f"bolt {component.name!r}: expected a grouping that says where its tuples come from, got "
                    "none; as in set_bolt(...).shuffle_grouping(component)"
                )
        self.order = self._in_order()
        self.tasks = self._tasks()

    def __getitem__(self, name: str) -> ComponentSpec:
        return self._components[name]

    def __iter__(self) -> Iterator[ComponentSpec]:
        return (self._components[name] for name in self.order)

    @property
    def spouts(self) -> list[ComponentSpec]:
        return [component for component in self._components.values() if component.is_spout]

    def without_objects(self) -> "ComponentGraph":
        return ComponentGraph(
            {name: replace(component, made_of=None) for name, component in self._components.items()}
        )

    def subscribers(self, name: str, stream: str) -> list[tuple[ComponentSpec, Grouping]]:
        return [
            (component, subscription.grouping)
            for component in self
            for subscription in component.inputs
            if (subscription.component, subscription.stream) == (name, stream)
        ]

    def reached_from(self, spout: str) -> set[str]:
        reached = {spout}
        for component in self:
            if any(subscription.component in reached for subscription in component.inputs):
                reached.add(component.name)
        return reached

    def _check(self, component: ComponentSpec, subscription: ComponentInput) -> None:
        where = f"bolt {component.name!r}"
        source = self._components.get(subscription.component)
        if source is None:
            raise InvalidConfig(
                f"{where}: expected a grouping on a component of the topology "
                f"({', '.join(sorted(self._components))}), got {subscription.component!r}"
            )
        stream = source.streams.get(subscription.stream)
        if stream is None:
            raise InvalidConfig(
                f"{where}: expected a grouping on a stream that {source.name!r} declares "
                f"({names_of(source.streams)}), got {subscription.stream!r}"
            )
        if stream.direct and source.is_spout:
            raise InvalidConfig(
                f"{where}: expected a direct stream of a bolt, because a spout cannot choose tasks, got "
                f"{source.name!r}, stream {subscription.stream!r}"
            )
        grouping = subscription.grouping
        missing = [field for field in grouping.fields if field not in stream.fields]
        if missing:
            raise InvalidConfig(
                f"{where}: expected a grouping by fields of {source.name!r}, stream {subscription.stream!r} "
                f"({', '.join(stream.fields) or 'none'}), got {missing[0]!r}"
            )
        missing = [field for field in component.needs if field not in stream.fields]
        if missing:
            raise InvalidConfig(
                f"{where}: expected {source.name!r}, stream {subscription.stream!r}, to have the field "
                f"{missing[0]!r}, which the bolt combines by; got {', '.join(stream.fields) or 'none'}"
            )
        if stream.direct != (grouping.kind is GroupingKind.DIRECT):
            needed = "direct_grouping, because it" if stream.direct else "another grouping, because no stream"
            raise InvalidConfig(
                f"{where}: expected {needed} is declared as direct, got {grouping} on {source.name!r}, stream "
                f"{subscription.stream!r}"
            )
        if component.is_stateful and grouping.kind is not GroupingKind.FIELDS:
            raise InvalidConfig(
                f"{where}: expected fields_grouping for a bolt with state, whose key says which task keeps it; "
                f"a state for all is behind a field that is always the same; got {grouping} on {source.name!r}"
            )

    def _in_order(self) -> tuple[str, ...]:
        order: dict[str, None] = {}
        waiting = dict(self._components)
        while waiting:
            ready = [
                name
                for name, component in waiting.items()
                if all(each.component in order for each in component.inputs)
            ]
            if not ready:
                raise InvalidConfig(
                    "expected a topology without cycles, in which tuples come to an end; got "
                    f"{' > '.join(_cycle_among(waiting))}"
                )
            for name in ready:
                order[name] = None
                del waiting[name]
        return tuple(order)

    def _tasks(self) -> dict[str, tuple[int, ...]]:
        tasks: dict[str, tuple[int, ...]] = {}
        first = 1
        for name, component in self._components.items():
            tasks[name] = tuple(range(first, first + component.parallelism))
            first += component.parallelism
        return tasks


def _check_once(component: ComponentSpec) -> None:
    seen: set[tuple[str, str]] = set()
    for subscription in component.inputs:
        source = (subscription.component, subscription.stream)
        if source in seen:
            raise InvalidConfig(
                f"bolt {component.name!r}: expected one grouping on {source[0]!r}, stream {source[1]!r}, got "
                "another: it would be given every tuple twice"
            )
        seen.add(source)


def _cycle_among(waiting: Mapping[str, ComponentSpec]) -> list[str]:
    way = [next(iter(waiting))]
    while way.count(way[-1]) == 1:
        way.append(next(each.component for each in waiting[way[-1]].inputs if each.component in waiting))
    return way[way.index(way[-1]) :][::-1]
