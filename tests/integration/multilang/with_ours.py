"""A bolt that is written with our own library for components."""

from kinesis_spout.storm.multilang import BasicBolt, TupleIn


class Split(BasicBolt):
    def process(self, tup: TupleIn) -> None:
        for word in tup.values[0].split(" "):
            self.emit([word])


Split().run()
