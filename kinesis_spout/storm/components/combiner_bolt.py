"""A bolt that combines the tuples of a key where they were made, so that one travels for many."""

import operator
from collections.abc import Callable, Sequence
from typing import Any

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.storm.components.bolt import Bolt
from kinesis_spout.storm.components.tuples import Tuple, are_field_names


class CombinerBolt(Bolt):
    """Combines tuples with equal keys, and emits one for each key at the end of the micro-batch.

    Set it before an exchange, by ``shuffle_grouping``: then it runs where its tuples are made, as partial
    aggregates do in Spark, and Trident's ``CombinerAggregator``. A ``fields_grouping`` by the key follows, to a
    bolt that combines what comes from several processes.

    What it emits is anchored to all tuples that are in it: when it fails, they all do.

    Args:
        key: the fields of its input by which tuples are combined; their values must be hashable.
        result: the name of the field that follows them in what it emits.
        value: the field that is combined; None: each tuple counts 1.
        combine: combines two values, in any order and in any groups. Pickled; what it raises fails the tuple at
            hand. It must not change its arguments.

    Raises:
        InvalidConfig: no names of fields, or a name is there twice.
    """

    def __init__(
        self,
        key: Sequence[str],
        result: str = "count",
        *,
        value: str | None = None,
        combine: Callable[[Any, Any], Any] = operator.add,
    ) -> None:
        names = [*key, result] if are_field_names(key) else []
        if not key or not are_field_names(names) or len(set(names)) < len(names):
            raise InvalidConfig(
                f"expected the names of the fields of a key, and another one for the result, got {key!r} and "
                f"{result!r}"
            )
        self.key = tuple(key)
        self.result = result
        self.value = value
        self.combine = combine

    @property
    def needs(self) -> tuple[str, ...]:
        """The fields that its input must have."""
        return self.key if self.value is None else (*self.key, self.value)

    def declare_output_fields(self) -> list[str]:
        """The key, and the result."""
        return [*self.key, self.result]

    def execute(self, tup: Tuple) -> None:
        """Never called: tuples are combined many at a time."""
        raise NotImplementedError(f"a CombinerBolt takes no single tuple, got {tup!r}")
