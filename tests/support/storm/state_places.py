"""Keys by the task that has them, for the tests of keyed state."""

from kinesis_spout.storm.state.key_values import task_of
from kinesis_spout.storm.state.manifest import PartitionPlace


def keys_of(index: int, parallelism: int, count: int) -> list[str]:
    """Give the first so many keys ``k<number>`` of a task."""
    keys: list[str] = []
    number = 0
    while len(keys) < count:
        if task_of(f"k{number}", parallelism) == index:
            keys.append(f"k{number}")
        number += 1
    return keys


def place(index: int = 0, parallelism: int = 1) -> PartitionPlace:
    return PartitionPlace(
        topology="counts", life="0f", component="count", parallelism=parallelism, index=index
    )
