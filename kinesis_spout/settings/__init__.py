"""The settings of users: one table of options for every door, their types, and each door's words for them.

Not what is done with them. Begin with ``option`` (a row) and ``table``; ``spout_config`` and
``source_options`` are the validated values that the doors get.
"""

from kinesis_spout.settings.spout_config import SpoutConfig
from kinesis_spout.settings.typed import SpoutSettings, ZooKeeperKeywords

__all__ = ["SpoutConfig", "SpoutSettings", "ZooKeeperKeywords"]
