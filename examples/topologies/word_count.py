"""Storm's word count: sentences from a stream, split into words, counted where each word comes together.

$ export KINESIS_SPOUT_STREAM=sentences KINESIS_SPOUT_APP=word-count
$ kinesis-spout topology run examples.topologies.word_count:word_count --master "local[2]"
"""

from collections import Counter
from collections.abc import Sequence

from kinesis_spout import KinesisSpout
from kinesis_spout.storm import (
    BasicBolt,
    BatchBolt,
    CombinerBolt,
    FailedException,
    TopologyBuilder,
    Tuple,
)


class Split(BasicBolt):
    """Splits sentences into words."""

    def declare_output_fields(self) -> list[str]:
        """One word in each tuple."""
        return ["word"]

    def process(self, tup: Tuple) -> None:
        """Emit the words, anchored to their sentence."""
        words = tup["sentence"].split()
        if not words:
            raise FailedException("no words")  # fails the record: retried, then dead-lettered
        self.emit_all([word.lower()] for word in words)


class Count(BatchBolt):
    """Counts the words of a micro-batch, and prints them. It keeps nothing."""

    def process_batch(self, batch: Sequence[Tuple]) -> None:
        """Print each word with its count; then the tuples are acked."""
        counts: Counter[str] = Counter()
        for tup in batch:
            counts[tup["word"]] += tup["count"]
        for word, count in counts.items():
            print(f"{word}: {count}")


def word_count() -> TopologyBuilder:
    """Wire it. Stream, application and all else are settings from the environment."""
    builder = TopologyBuilder()
    builder.set_spout("sentences", KinesisSpout(scheme="text"), fields=["sentence"])
    builder.set_bolt("split", Split(), 2).shuffle_grouping("sentences")
    builder.set_bolt("tally", CombinerBolt(["word"]), 2).shuffle_grouping("split")
    builder.set_bolt("count", Count(), 2).fields_grouping("tally", ["word"])
    return builder
