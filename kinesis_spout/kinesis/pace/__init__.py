"""How fast shards are read, so that other consumers of the stream have room: rules and counts, no calls.

What makes the calls, and waits for them, is in the folder beside this one, ``read``. Begin with ``byte_budget``.
"""

from kinesis_spout.kinesis.pace.application_budget import ApplicationBudget
from kinesis_spout.kinesis.pace.byte_budget import ByteBudget
from kinesis_spout.kinesis.pace.idle_period import aligned_idle_period, idle_period
from kinesis_spout.kinesis.pace.pace import Pace

__all__ = ["ApplicationBudget", "ByteBudget", "Pace", "aligned_idle_period", "idle_period"]
