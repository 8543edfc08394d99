"""Keeps the balance of each account and warns of overdrafts: a topology of kinesis-spout.

$ kinesis-spout topology run after:overdrafts
"""

from kinesis_spout import KinesisSpout
from kinesis_spout.storm import BasicBolt, StatefulBolt, TopologyBuilder


class Balance(StatefulBolt):  # the agent
    def declare_output_fields(self):
        return ["account", "balance"]

    def init_state(self, balances):
        self.balances = balances  # the Table, stored in one transaction with the checkpoints

    def execute(self, tup):
        account = tup["account"]
        balance = self.balances.get(account, 0) + tup["cents"]
        self.balances.put(account, balance)
        if balance < 0:
            self.collector.emit([account, balance], tup)
        self.collector.ack(tup)


class Warn(BasicBolt):  # the sink; what it raises fails the payment, which is then undone in the balance
    def process(self, tup):
        print(*tup.values)


def overdrafts():
    builder = TopologyBuilder()
    payments = KinesisSpout(scheme="json")
    builder.set_spout("payments", payments, fields=["account", "cents"])  # by their names in the JSON
    builder.set_bolt("balance", Balance(), 8).fields_grouping("payments", ["account"])
    builder.set_bolt("warn", Warn()).shuffle_grouping("balance")
    return builder.build("overdrafts", state="/var/lib/overdrafts")
