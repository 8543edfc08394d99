"""A tuple on its way: values with names, the stream they come on, the trees they are part of; what can travel."""

import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from io import BytesIO
from typing import Any, Final, TypeGuard

import msgspec

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.storm.multilang.protocol import DEFAULT_STREAM, SYSTEM_TASK, TICK_COMPONENT, TICK_STREAM


@dataclass(frozen=True, slots=True)
class Stream:
    """One declared stream of a component."""

    fields: tuple[str, ...]
    """The names of the values of its tuples, in order."""
    direct: bool = False
    """True if the component says for each tuple which task gets it (``emit_direct``)."""


OutputFields = Sequence[str] | Stream | Mapping[str, Sequence[str] | Stream]
"""The result of ``declare_output_fields``: the default stream or its fields, or the streams by their ids."""


def declared_streams(component: str, declared: OutputFields) -> dict[str, Stream]:
    """Read what a component declares.

    Raises:
        InvalidConfig: it has neither form, a stream's id begins with ``__``, or a field is named twice; names the
            component and the stream.
    """
    if not isinstance(declared, Mapping):
        declared = {DEFAULT_STREAM: declared} if declared else {}
    return {stream: _stream(component, stream, fields) for stream, fields in declared.items()}


def are_field_names(fields: object) -> TypeGuard[Sequence[str]]:
    """Tell whether these are names in an order."""
    if not isinstance(fields, Sequence) or isinstance(fields, str):
        return False
    return all(isinstance(field, str) and field for field in fields)


def names_of(streams: Iterable[str]) -> str:
    """Give the names of streams, for messages."""
    return ", ".join(sorted(streams)) or "none: declare_output_fields gives no fields"


def check_values(where: str, values: object, size: int) -> None:
    """Refuse values that are no list or tuple, or not as many as fields are declared; ``where`` is for errors."""
    if not isinstance(values, Sequence) or isinstance(values, (str, bytes, bytearray)):
        raise InvalidConfig(f"{where}: expected a list or tuple of values, got {type(values).__name__}")
    if len(values) != size:
        raise InvalidConfig(
            f"{where}: expected {size} values, as many as fields are declared, got {len(values)}"
        )


def _stream(component: str, name: object, declared: Sequence[str] | Stream) -> Stream:
    if not isinstance(name, str) or not name or name.startswith("__"):
        raise InvalidConfig(
            f"component {component!r}: expected ids of streams that do not begin with __, got {name!r}"
        )
    fields = declared.fields if isinstance(declared, Stream) else declared
    if not are_field_names(fields):
        raise InvalidConfig(
            f"component {component!r}, stream {name!r}: expected the names of its fields in their order, as in "
            f'["word", "count"], got {declared!r}'
        )
    twice = sorted(field for field, times in Counter(fields).items() if times > 1)
    if twice:
        raise InvalidConfig(
            f"component {component!r}, stream {name!r}: expected each field once, got {', '.join(twice)} twice"
        )
    return Stream(tuple(fields), direct=isinstance(declared, Stream) and declared.direct)


class TupleState(IntEnum):
    """The answer of a bolt to a tuple. Only an open one is 0."""

    OPEN = 0
    ACKED = 1
    FAILED = 2
    TIMED_OUT = 3
    """Nothing, and the micro-batch is over: an ack or fail now comes too late."""


@dataclass(frozen=True, slots=True)
class Source:
    """The origin of tuples: one task's output on one stream. Shared by all of them."""

    component: str
    stream: str
    task: int
    """The id of the task that emitted."""
    fields: tuple[str, ...]
    places: Mapping[str, int] = field(init=False, repr=False, compare=False)
    """The place of each field's value."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "places", {name: at for at, name in enumerate(self.fields)})

    def index(self, field: str) -> int:
        """Say which value a field is.

        Raises:
            KeyError: names the fields there are.
        """
        try:
            return self.places[field]
        except KeyError:
            raise KeyError(
                f"{self.component!r} has no field {field!r} in its stream {self.stream!r}, only "
                f"{', '.join(self.fields) or 'none'}"
            ) from None


TICK: Final = Source(TICK_COMPONENT, TICK_STREAM, SYSTEM_TASK, ())


class Tuple(msgspec.Struct, eq=False, gc=False):
    """One tuple, as a bolt gets it. Its values must not be changed: other bolts can have the same ones.

    A struct, because making one is most of what a tuple costs, and one that the garbage collector leaves
    alone: it is no part of a cycle unless its own values lead back to it.
    """

    values: Sequence[Any]
    source: Source
    root: int = 0
    """The root of its tree; 0 if it is not tracked. Nearly every tuple is part of one tree."""
    others: tuple[int, ...] | None = None
    """The roots of the other trees that it is part of, if any."""
    state: TupleState = TupleState.OPEN
    is_held: bool = False
    """True if it was neither acked nor failed when its bolt returned. Its trees count it since; see ``Trees``."""

    def __getitem__(self, key: str | int) -> Any:
        """Give a value by its field's name, or by its place.

        Raises:
            KeyError: no such field; names those there are.
        """
        at = self.source.places.get(key)  # type: ignore[arg-type]  # a place is no name
        if at is None:
            at = key if isinstance(key, int) else self.source.index(key)
        return self.values[at]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def roots(self) -> tuple[int, ...]:
        """The roots of all its trees; none if it is not tracked."""
        return (self.root, *(self.others or ())) if self.root else ()

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the values."""
        return self.source.fields

    @property
    def component(self) -> str:
        """The component that emitted it."""
        return self.source.component

    @property
    def stream(self) -> str:
        """The stream of that component."""
        return self.source.stream

    @property
    def task(self) -> int:
        """The id of the task that emitted it."""
        return self.source.task

    @property
    def is_tick(self) -> bool:
        """True if it is a tick: no values, from ``__system``, to be neither acked nor failed."""
        return self.source is TICK

    def __repr__(self) -> str:
        values = ", ".join(map(_shown, zip(self.fields, self.values, strict=False)))
        return f"Tuple({self.component}/{self.stream}: {values})"


def _shown(named: tuple[str, Any]) -> str:
    return f"{named[0]}={named[1]!r}"


# Values that can travel, or be kept. Many are packed at once; only if that fails, each is tried alone.

Dumps = Callable[[Any, int], bytes]
"""``cloudpickle.dumps``, which takes functions and classes of ``__main__`` too. None: ``pickle``."""


class _Pickler(pickle.Pickler):
    """Notices what is no value of a built-in type: only that could fail to be unpickled."""

    has_classes = False

    def reducer_override(self, _: Any) -> Any:
        self.has_classes = True
        return NotImplemented


def packed(values: Any, dumps: Dumps | None = None) -> bytes:
    """Pickle values that can be unpickled; or raise what their classes raise."""
    if dumps is not None:
        found = dumps(values, pickle.HIGHEST_PROTOCOL)
        try_unpickling(found)
        return found
    file = BytesIO()
    pickler = _Pickler(file, pickle.HIGHEST_PROTOCOL)
    pickler.dump(values)
    if pickler.has_classes:
        pickle.loads(file.getbuffer())  # noqa: S301 - our own, made a moment ago
    return file.getvalue()


def try_unpickling(pickled: bytes) -> None:
    """Unpickle values that can be objects of classes, to see whether it works; raises as ``packed``."""
    # It names a class; or some text has that byte, which costs a look in vain.
    if pickle.STACK_GLOBAL in pickled:
        pickle.loads(pickled)  # noqa: S301 - our own, made a moment ago


def why_not(value: Any, dumps: Dumps | None = None) -> Exception | None:
    """Say why a value cannot travel; None if it can."""
    try:
        packed(value, dumps)
    except Exception as error:  # noqa: BLE001 - that is what is asked
        return error
    return None


def why_unfit(
    stream: str, fields: Sequence[str], values: Sequence[Any], error: Exception, dumps: Dumps | None = None
) -> str:
    """Say of a tuple that cannot travel which of its fields is to blame; ``error`` is of its values together."""
    where, what = f"stream {stream!r}", type(values).__name__
    for field_name, value in zip(fields, values, strict=False):
        found = why_not(value, dumps)
        if found is not None:
            where, what, error = f"{where}, field {field_name!r}", type(value).__name__, found
            break
    cure = "" if "__main__" not in str(error) else _OF_A_SCRIPT
    return (
        f"{where}: expected a value that can be pickled and unpickled, because it goes to another process, got "
        f"{what} ({type(error).__name__}: {error}){cure}"
    )


_OF_A_SCRIPT: Final = (
    ": a class of the script that was started is known by its name only there; put it into a module that the "
    "executors can import, or emit a tuple or mapping"
)
