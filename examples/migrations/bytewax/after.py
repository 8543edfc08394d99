"""Sums payments by account and minute: a topology of kinesis-spout, with windows in its keyed state.

$ kinesis-spout topology run after:totals
"""

from datetime import UTC, datetime

from kinesis_spout import KinesisSpout
from kinesis_spout.storm import BasicBolt, Seconds, TopologyBuilder, WindowedBolt

FIRST_MINUTE = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


class Valid(BasicBolt):  # op.filter; what it raises fails the record, as it would for op.map
    def declare_output_fields(self):
        return ["account", "cents", "at"]

    def process(self, tup):
        if tup["cents"] > 0:
            self.emit([tup["account"], tup["cents"], datetime.fromisoformat(tup["at"]).timestamp()])


class Minutes(WindowedBolt):  # fold_window
    length = Seconds(60)  # TumblingWindower
    lateness_seconds = 10  # wait_for_system_duration

    def declare_output_fields(self):
        return ["account", "minute", "cents"]

    def time_of(self, tup):  # EventClock
        return tup["at"]

    def execute_window(self, account, window):
        minute = round(window.start - FIRST_MINUTE) // 60
        self.emit([account, minute, sum(tup["cents"] for tup in window.tuples)])


class Print(BasicBolt):  # StdOutSink
    def process(self, tup):
        print(*tup.values)


def totals():
    builder = TopologyBuilder()
    payments = KinesisSpout(scheme="json")
    builder.set_spout("payments", payments, fields=["account", "cents", "at"])  # by their names in the JSON
    builder.set_bolt("valid", Valid()).shuffle_grouping("payments")
    builder.set_bolt("minutes", Minutes(), 2).fields_grouping("valid", ["account"])  # op.key_on
    builder.set_bolt("print", Print()).shuffle_grouping("minutes")
    return builder.build("totals", state="/var/lib/totals")
