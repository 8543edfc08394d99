"""The options of a topology: what ``TopologyBuilder.build`` takes."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Final, Literal

import msgspec

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.storm.graph.component_graph import ComponentGraph

MOST_TASKS: Final = 10_000
"""The most tasks of a bolt, of ackers, of an exchange. Each keeps a block for each task behind an exchange."""

_MOST_SECONDS: Final = 1_000_000

_Seconds = Annotated[float, msgspec.Meta(gt=0, le=_MOST_SECONDS)]
_Ackers = Annotated[int, msgspec.Meta(ge=0, le=MOST_TASKS)]
_Partitions = Annotated[int, msgspec.Meta(ge=1, le=MOST_TASKS)]
_Positive = Annotated[int, msgspec.Meta(ge=1)]
_ALLOWED: Final = {
    "message_timeout_seconds": f"a number of seconds above 0, at most {_MOST_SECONDS:,}",
    "ackers": f"a whole number from 0 to {MOST_TASKS:,}, or None",
    "partitions": f"a whole number from 1 to {MOST_TASKS:,}, or None",
    "max_spout_pending": "a whole number from 1",
    "state_guarantee": '"exactly_once" or "at_least_once"',
    "state": 'an address such as "/var/lib/app/state", or None',
}


class TopologyConf(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a topology. Those of a ``KinesisSpout`` (retries, limits, commits) are set at the spout."""

    message_timeout_seconds: _Seconds = 30.0
    """The longest time a bolt should wait for anything, counted in each task from the beginning of the micro-batch
    there; see ``OutputCollector.is_overdue``. A call of a bolt that takes a quarter longer is interrupted, and its
    tuple times out. A job of Spark that takes three times as long, and a minute at least, is cancelled, and its
    records are retried."""
    ackers: _Ackers | None = None
    """The tasks that decide whether trees are complete. None: a tree is, unless a task reports that it held or
    failed one of its tuples, which costs a tuple nothing. A number: so many tasks share the trees, and count the
    edges of each as Storm's ackers do, for the price of one more exchange. 0 acks each record when its tuple is
    emitted: then failures are not retried. Not 0 with state, which could not be exact then."""
    partitions: _Partitions | None = None
    """The most tasks of Spark that run the bolts after an exchange. None: as many as the bolts there
    have tasks, and no more than Spark runs at a time."""
    max_spout_pending: _Positive = 1_000
    """The most tuples of a spout of your own that are under way. Those that it emits beyond them in one call
    wait for the next micro-batch."""
    state: str | None = None
    """The address of the state of stateful bolts: a local folder, or an address that pyarrow opens ("s3://...")."""
    state_guarantee: Literal["exactly_once", "at_least_once"] = "exactly_once"
    """The guarantee for changes of the state by a record that failed. "exactly_once": they are undone, so that the
    record counts once. "at_least_once", as in Storm: they stay, so that the record counts again when it comes
    again; nothing is run again for its sake."""

    @classmethod
    def of(cls, options: dict[str, Any]) -> "TopologyConf":
        """Check options.

        Raises:
            InvalidConfig: an unknown option, with what is like it; or a value that is not allowed.
        """
        for name in options:
            if name not in cls.__struct_fields__:
                like = get_close_matches(name, cls.__struct_fields__, 1)
                hint = f"; did you mean {like[0]!r}" if like else ""
                raise InvalidConfig(
                    f"expected an option of a topology ({', '.join(cls.__struct_fields__)}), got {name!r}{hint}; "
                    "what your components read goes into conf={...}"
                )
        for name, value in options.items():
            try:
                msgspec.convert({name: value}, cls)
            except msgspec.ValidationError as error:
                raise InvalidConfig(
                    f"option {name} of a topology: expected {_ALLOWED[name]}, got {value!r}"
                ) from error
        return msgspec.convert(options, cls)


class BuiltTopology:
    """A graph of components with its name and its options. ``Topology`` is one that its user can run and draw."""

    def __init__(
        self, name: str, graph: ComponentGraph, options: TopologyConf, conf: Mapping[str, Any]
    ) -> None:
        self.name = name
        self.graph = graph
        self.options = options
        self.conf = conf
