"""What the scheme of a ``KinesisSpout`` makes of a record, as the values of a tuple."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kinesis_spout.model.record import Record


class SpoutValues:
    """Makes the values of a spout's tuples. Picklable.

    Args:
        scheme: the spout's.
        fields: the names of the values.
    """

    def __init__(self, scheme: Callable[[Record], Any], fields: Sequence[str]) -> None:
        self._scheme = scheme
        self._fields = tuple(fields)

    def __call__(self, record: Record) -> Sequence[Any]:
        """Give one value for each field.

        Raises:
            ValueError: the scheme gave something else; it fails the record.
        """
        made = self._scheme(record)
        fields = self._fields
        if len(fields) == 1:
            return (made,)
        if isinstance(made, Mapping) and all(field in made for field in fields):
            return [made[field] for field in fields]
        if isinstance(made, Sequence) and not isinstance(made, (str, bytes)) and len(made) == len(fields):
            return made
        raise ValueError(
            f"expected the scheme to make {len(fields)} values of a record, for the fields {', '.join(fields)}, "
            f"got {type(made).__name__}"
        )
