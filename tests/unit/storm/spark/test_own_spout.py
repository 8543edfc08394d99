"""What a spout of the user's own emits, until it travels."""

from kinesis_spout.storm import Stream
from kinesis_spout.storm.spark.own_spout import GatheringCollector


def test_a_spout_may_use_its_list_again_once_it_is_emitted() -> None:
    collector = GatheringCollector("lines", {"default": Stream(("line",))})
    row = [0]
    for number in range(2):
        row[0] = number
        collector.emit(row, message_id=number)
    assert collector.gathered == [([0], 0, "default"), ([1], 1, "default")]
