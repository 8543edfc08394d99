"""Counts what was sold, with the bolts of streamparse as they are.

$ kinesis-spout topology run unchanged:sales
"""

from pathlib import Path

from kinesis_spout import KinesisSpout
from kinesis_spout.storm import ShellBolt, TopologyBuilder

SOURCES = Path(__file__).parent  # of the bolts; on a cluster an archive, see "Bring it to the machines"


def shell_bolt(name, fields):
    return ShellBolt(["python3", "-m", "streamparse.run", name], fields=fields, resources=SOURCES)


def sales():
    builder = TopologyBuilder()
    builder.set_spout("orders", KinesisSpout(scheme="text"), fields=["order"])
    lines = shell_bolt("before.Lines", ["product", "pieces"])
    builder.set_bolt("lines", lines, 2).shuffle_grouping("orders")
    sold = shell_bolt("before.Sold", ["product", "sold"])
    builder.set_bolt("sold", sold, 2).fields_grouping("lines", ["product"])
    return builder
