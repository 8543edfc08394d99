"""The word count of streamparse's own project template, as far as the bolt goes."""

import os
from collections import Counter
from typing import Any

from streamparse import Bolt


class WordCountBolt(Bolt):  # type: ignore[misc]  # streamparse has no types
    outputs = ("word", "count")

    def initialize(self, conf: Any, ctx: Any) -> None:
        del conf, ctx
        self.counter: Counter[str] = Counter()
        self.pid = os.getpid()
        self.total = 0

    def process(self, tup: Any) -> None:
        word = tup.values[0]
        self.counter[word] += 1
        self.total += 1
        if self.total % 2 == 0:
            self.logger.info("counted [%s] words [pid=%s]", self.total, self.pid)
        self.emit([word, self.counter[word]])
