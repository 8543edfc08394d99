"""What a component says of its output: its streams, and the names of the fields of each."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeGuard

from kinesis_spout.model.errors import InvalidConfig

DEFAULT_STREAM: Final = "default"


@dataclass(frozen=True, slots=True)
class Stream:
    """One declared stream of a component."""

    fields: tuple[str, ...]
    """The names of the values of its tuples, in order."""
    direct: bool = False
    """Whether the component says for each tuple which task gets it (``emit_direct``)."""


OutputFields = Sequence[str] | Stream | Mapping[str, Sequence[str] | Stream]
"""What ``declare_output_fields`` gives: the default stream or its fields, or the streams by their ids."""


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
    """Make sure that a tuple can have these values.

    Args:
        where: the component and the stream, for messages.
        values: what was emitted.
        size: as many as fields are declared.

    Raises:
        InvalidConfig: it is no list or tuple, or has another number of values.
    """
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
