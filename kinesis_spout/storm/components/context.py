"""What a task knows of itself and of the topology around it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """Given to ``prepare`` and ``open``. The same in every micro-batch, and after a restart."""

    topology: str
    """Its name."""
    component: str
    task: int
    """This task's id, unique in the topology, from 1."""
    index: int
    """Which of its component's tasks it is, from 0."""
    parallelism: int
    """How many tasks the component has."""
    tasks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The tasks of every component."""
    targets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Which components subscribe to each of this one's streams."""
    sources: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    """The fields of each stream that it subscribes to, by component."""
    grouped_by: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    """By which fields the tuples of a component and stream are grouped that it subscribes to; none if by none."""
    groupings: Mapping[tuple[str, str, str], tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    """How it subscribes, and who subscribes to it: the name of the grouping, such as "fields", and its fields. By
    the component that emits, its stream, and the component that subscribes."""
    processing_time: Callable[[], float] = time.time
    """When the micro-batch at hand began, in seconds since the epoch. One clock for all tasks; it never runs
    backwards. In ``run_local`` and ``local`` what their clock says, if they are given one."""
    read_to: Callable[[], float] = time.time
    """In processing time: what was put onto the stream before then is in the micro-batch at hand, or was in one
    before. Behind, and at rest, while records wait: in a backlog, or while nothing can be read or delivered."""
