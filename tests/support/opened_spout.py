"""What is inside an opened spout of the plain-Python door that reads one stream."""

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.plain.buffered_shards import BufferedShards
from kinesis_spout.plain.record_spout import RecordSpout


def opened(spout: RecordSpout) -> tuple[Consumer, BufferedShards]:
    """Give the consumer of its only stream, and what is read."""
    (tuples,) = spout._opened().current.values()
    return tuples.consumer, tuples.shards
