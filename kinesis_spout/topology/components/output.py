"""What a component says of its output: its streams, and the names of the fields of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kinesis_spout.errors import InvalidConfig

DEFAULT_STREAM: Final = "default"

OutputFields = Sequence[str] | Mapping[str, "Sequence[str] | Stream"]
"""What ``declare_output_fields`` gives: the fields of the default stream, or the streams by their ids."""


@dataclass(frozen=True, slots=True)
class Stream:
    """One declared stream of a component."""

    fields: tuple[str, ...]
    """The names of the values of its tuples, in order."""
    direct: bool = False
    """Whether the component says for each tuple which task gets it (``emit_direct``)."""


def declared_streams(component: str, declared: OutputFields) -> dict[str, Stream]:
    """Read what a component declares.

    Raises:
        InvalidConfig: it is neither of the two forms, or a stream names a field twice; names the component.
    """
    if not isinstance(declared, Mapping):
        declared = {DEFAULT_STREAM: declared} if declared else {}
    return {stream: _stream(component, stream, fields) for stream, fields in declared.items()}


def _stream(component: str, name: object, declared: "Sequence[str] | Stream") -> Stream:
    fields = declared.fields if isinstance(declared, Stream) else declared
    are_names = not isinstance(fields, str) and all(isinstance(field, str) and field for field in fields)
    if not (isinstance(name, str) and name and are_names):
        raise InvalidConfig(
            f"component {component!r}, stream {name!r}: expected the names of its fields, as in "
            f'["word", "count"], got {declared!r}'
        )
    twice = {field for field in fields if list(fields).count(field) > 1}
    if twice:
        raise InvalidConfig(
            f"component {component!r}, stream {name!r}: expected each field once, got {sorted(twice)} twice"
        )
    return Stream(tuple(fields), direct=isinstance(declared, Stream) and declared.direct)
