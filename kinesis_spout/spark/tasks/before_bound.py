"""Where a bounded run ends among the records that were read."""

from collections.abc import Sequence

from kinesis_spout.model.record import Record
from shard_state import ShardBound


def before_bound(records: Sequence[Record], bound: ShardBound | None) -> Sequence[Record]:
    """Give the records before the first that ends their shard for this run: all of them, if none does."""
    if bound is None:
        return records
    for at, record in enumerate(records):
        if bound.ends_before(record.sequence, record.arrival_timestamp):
            return records[:at]
    return records
