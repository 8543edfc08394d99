"""Components as the documentation of pystorm shows them: nothing in them knows who runs them."""

import sys
from typing import Any

from pystorm import BatchingBolt, Bolt, ReliableSpout, TicklessBatchingBolt


class Split(Bolt):  # type: ignore[misc]  # pystorm has no types
    def process(self, tup: Any) -> None:
        for word in tup.values[0].split(" "):
            self.emit([word])


class Count(Bolt):  # type: ignore[misc]
    def initialize(self, conf: Any, context: Any) -> None:
        del conf, context
        self.counts: dict[str, int] = {}

    def process(self, tup: Any) -> None:
        # By name: pystorm knows the fields from the hand-shake.
        word = tup.values.word
        self.counts[word] = self.counts.get(word, 0) + 1
        tasks = self.emit([word, self.counts[word]], need_task_ids=True)
        self.logger.info("%s went to %s", word, tasks)


class Picky(Bolt):  # type: ignore[misc]
    exit_on_exception = False

    def process(self, tup: Any) -> None:
        self.emit([1 // len(tup.values[0].strip("!"))])


class CountBatch(BatchingBolt):  # type: ignore[misc]
    def group_key(self, tup: Any) -> Any:
        return tup.values[0]

    def process_batch(self, key: Any, tups: list[Any]) -> None:
        self.emit([key, len(tups)])


class CountTicklessly(TicklessBatchingBolt):  # type: ignore[misc]
    secs_between_batches = 0.2

    def group_key(self, tup: Any) -> Any:
        return tup.values[0]

    def process_batch(self, key: Any, tups: list[Any]) -> None:
        self.emit([key, len(tups)])


class Sentences(ReliableSpout):  # type: ignore[misc]
    def initialize(self, conf: Any, context: Any) -> None:
        del conf, context
        self.sentences = iter(enumerate(["the cow jumped", "over the moon"]))

    def next_tuple(self) -> None:
        for number, sentence in self.sentences:
            self.emit([sentence], tup_id=number)
            return


globals()[sys.argv[1]](serializer=sys.argv[2] if len(sys.argv) > 2 else "json").run()
