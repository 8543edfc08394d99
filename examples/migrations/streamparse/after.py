"""Counts what was sold, in a topology of kinesis-spout: the counts survive a crash, and a retry counts once.

$ kinesis-spout topology run after:sales
"""

from kinesis_spout import KinesisSpout, Reject
from kinesis_spout.storm import BasicBolt, StatefulBolt, TopologyBuilder


class Lines(BasicBolt):
    def declare_output_fields(self):
        return ["product", "pieces"]

    def process(self, tup):
        lines = tup["order"]["lines"]
        if not lines:
            raise Reject("an order without lines")  # the record goes to the dead letters at once
        self.emit_all([line["product"], line["pieces"]] for line in lines)


class Sold(StatefulBolt):
    def declare_output_fields(self):
        return ["product", "sold"]

    def init_state(self, state):
        self.sold = state  # by product; stored in one transaction with the checkpoints

    def execute(self, tup):
        sold = self.sold.get(tup["product"], 0) + tup["pieces"]
        self.sold.put(tup["product"], sold)
        self.collector.emit([tup["product"], sold], tup)
        self.collector.ack(tup)


def sales():
    builder = TopologyBuilder()
    builder.set_spout("orders", KinesisSpout(scheme="json"), fields=["order"])  # one field: all of it
    builder.set_bolt("lines", Lines()).shuffle_grouping("orders")
    builder.set_bolt("sold", Sold(), 2).fields_grouping("lines", ["product"])
    return builder.build("sales", state="/var/lib/sales")
