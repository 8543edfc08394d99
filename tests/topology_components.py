"""Components that the tests of topologies wire up. In a module, so that executors can import them."""

from kinesis_spout.topology import BasicBolt, Bolt, FailedException, Spout, Tuple
from tests.micro_batch_world import DeliveryLog


class Sentences(Spout):
    """A spout that only declares: local runs put their own tuples in its place."""

    def declare_output_fields(self) -> list[str]:
        return ["sentence"]

    def next_tuple(self) -> None:
        raise AssertionError("a local run asks no spout")


class Split(BasicBolt):
    """Splits sentences into words; fails those that cannot be split."""

    def declare_output_fields(self) -> list[str]:
        return ["word"]

    def process(self, tup: Tuple) -> None:
        if "unsplittable" in tup["sentence"]:
            raise FailedException("cannot be split")
        for word in tup["sentence"].split():
            self.emit([word])


class LogWords(Bolt):
    """Writes every word it is given to a file, with its task; fails and forgets words on request."""

    def __init__(self, log: DeliveryLog) -> None:
        self._log = log

    def prepare(self, conf, context, collector) -> None:  # type: ignore[no-untyped-def]
        super().prepare(conf, context, collector)
        self._context = context

    def execute(self, tup: Tuple) -> None:
        self._log.add(tup["word"], self._context.task, self._context.component)
        if tup["word"] == "poison":
            self.collector.fail(tup, "poisoned")
        elif tup["word"] != "forgotten":
            self.collector.ack(tup)
