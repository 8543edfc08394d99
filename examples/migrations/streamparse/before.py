"""Counts what was sold: a topology of streamparse, with a spout that reads one shard."""

import json
import time

import boto3
from streamparse import Bolt, Grouping, ReliableSpout, Topology

POLL_SECONDS = 0.25


class Orders(ReliableSpout):
    outputs = ["order"]

    def initialize(self, stormconf, context):
        self.kinesis = boto3.client("kinesis")
        self.iterator = self.kinesis.get_shard_iterator(
            StreamName="orders", ShardId="shardId-000000000000", ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        self.polled_at = 0.0

    def next_tuple(self):
        if time.monotonic() - self.polled_at < POLL_SECONDS:
            return
        self.polled_at = time.monotonic()
        page = self.kinesis.get_records(ShardIterator=self.iterator)
        self.iterator = page["NextShardIterator"]
        for record in page["Records"]:
            self.emit([record["Data"].decode()], tup_id=record["SequenceNumber"])


class Lines(Bolt):
    outputs = ["product", "pieces"]

    def process(self, tup):
        for line in json.loads(tup.values[0])["lines"]:
            self.emit([line["product"], line["pieces"]])


class Sold(Bolt):
    outputs = ["product", "sold"]

    def initialize(self, conf, context):
        self.sold = {}

    def process(self, tup):
        product, pieces = tup.values
        self.sold[product] = self.sold.get(product, 0) + pieces
        self.emit([product, self.sold[product]])


class Sales(Topology):
    orders = Orders.spec()
    lines = Lines.spec(inputs=[orders], par=2)
    sold = Sold.spec(inputs={lines: Grouping.fields("product")}, par=2)
