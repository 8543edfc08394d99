"""The word count of ``examples.topologies.word_count_state``, whose bolts fail and die on purpose."""

import os
import signal
from pathlib import Path
from typing import Final

from examples.demo.consumers.settings import ConsumerSettings
from examples.demo_topology.sentences import SentenceScheme, Trouble
from examples.topologies.word_count_state import CountWords, SplitSentence
from kinesis_spout import KinesisSpout
from kinesis_spout.storm import FailedException, Topology, TopologyBuilder, Tuple

COUNT: Final = "count"
SPLIT: Final = "split"
DEADLY: Final = 100
"""The number of the sentence that kills a worker."""


class TroubledSplit(SplitSentence):
    """Fails some sentences."""

    def declare_output_fields(self) -> list[str]:
        """See ``Bolt``."""
        return ["word", "trouble"]

    def process(self, tup: Tuple) -> None:
        """See ``BasicBolt``."""
        if tup["trouble"] == Trouble.SPLIT:
            raise FailedException("made to fail before it was split")
        for word in tup["sentence"].split():
            self.emit([word, tup["trouble"]])


class TroubledCount(CountWords):
    """Fails some words after it has counted them, and kills its process once.

    Args:
        killed: the file that it makes before.
    """

    def __init__(self, killed: Path) -> None:
        self._killed = killed

    def execute(self, tup: Tuple) -> None:
        """See ``Bolt``."""
        trouble = tup["trouble"]
        if trouble == Trouble.COUNT:
            self._counts.put(tup["word"], self._counts.get(tup["word"], 0) + 1)
            raise FailedException("made to fail after it was counted")
        super().execute(tup)
        if trouble == Trouble.DEATH and not self._killed.exists():
            self._killed.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)


def troubled_topology(settings: ConsumerSettings) -> Topology:
    """Wire it."""
    directory = Path(settings.directory)
    spout = KinesisSpout(config=settings.spout_config(), scheme=SentenceScheme(DEADLY))
    builder = TopologyBuilder()
    builder.set_spout("sentences", spout, fields=["sentence", "trouble"])
    builder.set_bolt(SPLIT, TroubledSplit(), 2).shuffle_grouping("sentences")
    builder.set_bolt(COUNT, TroubledCount(killed_file(directory)), 4).fields_grouping(SPLIT, ["word"])
    return builder.build("word count", state=str(directory / "state"))


def killed_file(directory: Path) -> Path:
    """Say which file is there once a worker was killed: it holds its process id."""
    return directory / "killed-worker"
