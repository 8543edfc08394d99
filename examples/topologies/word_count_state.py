"""Storm's word count with exact counts: sentences are split into words, and words are counted in keyed state.

A sentence counts once, however often it fails and is delivered again, and whatever is killed meanwhile:
``make demo-topology`` shows that.
"""

from kinesis_spout import KinesisSpout
from kinesis_spout.storm import BasicBolt, KeyValueState, StatefulBolt, Topology, TopologyBuilder, Tuple


class SplitSentence(BasicBolt):
    """Splits sentences into words."""

    def declare_output_fields(self) -> list[str]:
        """See ``Bolt``."""
        return ["word"]

    def process(self, tup: Tuple) -> None:
        """See ``BasicBolt``."""
        for word in tup["sentence"].split():
            self.emit([word])


class CountWords(StatefulBolt):
    """Counts each word in its state; emits the word with what it has come to."""

    def declare_output_fields(self) -> list[str]:
        """See ``Bolt``."""
        return ["word", "count"]

    def init_state(self, state: KeyValueState) -> None:
        """See ``StatefulBolt``."""
        self._counts = state

    def execute(self, tup: Tuple) -> None:
        """See ``Bolt``."""
        count = self._counts.get(tup["word"], 0) + 1
        self._counts.put(tup["word"], count)
        self.collector.emit([tup["word"], count], tup)
        self.collector.ack(tup)


def word_count(spout: KinesisSpout, state: str) -> Topology:
    """Wire the word count.

    Args:
        spout: of sentences: with ``scheme="text"``.
        state: the address of the counts, such as "/var/lib/app/state". ``read_state("count")`` of the topology
            reads them.
    """
    builder = TopologyBuilder()
    builder.set_spout("sentences", spout, fields=["sentence"])
    builder.set_bolt("split", SplitSentence(), 2).shuffle_grouping("sentences")
    builder.set_bolt("count", CountWords(), 4).fields_grouping("split", ["word"])
    return builder.build("word count", state=state)
