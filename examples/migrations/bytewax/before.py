"""Sums payments by account and minute: a dataflow of bytewax, with a source of its own for Kinesis.

$ python -m bytewax.run before:flow --recovery-directory recovery
"""

import json
from datetime import UTC, datetime, timedelta

import boto3
import bytewax.operators as op
from bytewax.connectors.stdio import StdOutSink
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators.windowing import EventClock, TumblingWindower, fold_window


class Shard(StatefulSourcePartition):
    def __init__(self, stream, shard, after, until_caught_up):
        self.kinesis, self.after, self.until_caught_up = boto3.client("kinesis"), after, until_caught_up
        begin = {"ShardIteratorType": "TRIM_HORIZON"}
        if after is not None:
            begin = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": after}
        where = self.kinesis.get_shard_iterator(StreamName=stream, ShardId=shard, **begin)
        self.iterator = where["ShardIterator"]
        self.awake_at = datetime.now(UTC)

    def next_batch(self):
        page = self.kinesis.get_records(ShardIterator=self.iterator)
        self.iterator = page.get("NextShardIterator")
        if not page["Records"] and (self.iterator is None or self.until_caught_up):
            raise StopIteration
        self.awake_at = datetime.now(UTC) + timedelta(seconds=0.25)
        self.after = page["Records"][-1]["SequenceNumber"] if page["Records"] else self.after
        return [record["Data"] for record in page["Records"]]

    def next_awake(self):
        return self.awake_at

    def snapshot(self):
        return self.after


class Kinesis(FixedPartitionedSource):
    def __init__(self, stream, *, until_caught_up=False):
        self.stream, self.until_caught_up = stream, until_caught_up

    def list_parts(self):
        shards = boto3.client("kinesis").list_shards(StreamName=self.stream)["Shards"]
        return [shard["ShardId"] for shard in shards]

    def build_part(self, step_id, shard, after):
        return Shard(self.stream, shard, after, self.until_caught_up)


def totals(source):
    flow = Dataflow("totals")
    payments = op.map("parse", op.input("payments", flow, source), json.loads)
    valid = op.filter("valid", payments, lambda payment: payment["cents"] > 0)
    keyed = op.key_on("account", valid, lambda payment: payment["account"])
    windows = fold_window(
        "minute",
        keyed,
        EventClock(
            lambda payment: datetime.fromisoformat(payment["at"]),
            wait_for_system_duration=timedelta(seconds=10),
        ),
        TumblingWindower(length=timedelta(minutes=1), align_to=datetime(2026, 1, 1, tzinfo=UTC)),
        lambda: 0,
        lambda total, payment: total + payment["cents"],
        lambda one, other: one + other,
    )
    lines = op.map("line", windows.down, lambda found: f"{found[0]} {found[1][0]} {found[1][1]}")
    op.output("lines", lines, StdOutSink())
    return flow


def flow():
    return totals(Kinesis("payments"))
