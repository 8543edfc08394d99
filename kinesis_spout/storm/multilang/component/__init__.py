"""To write bolts and spouts in Python for any host that speaks Storm's multilang protocol.

A component is a program: a subclass of ``Bolt``, ``BasicBolt`` or ``Spout``, and a call of its ``run``. The
protocol itself, and hosts, are not here. Begin with ``bolt``.
"""

from kinesis_spout.storm.multilang.component.bolt import BasicBolt, Bolt
from kinesis_spout.storm.multilang.component.component import Component, GiveUp
from kinesis_spout.storm.multilang.component.spout import Spout
from kinesis_spout.storm.multilang.messages import TupleIn
from kinesis_spout.storm.multilang.sendable import UnsendableValue

__all__ = ["BasicBolt", "Bolt", "Component", "GiveUp", "Spout", "TupleIn", "UnsendableValue"]
