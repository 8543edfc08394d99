"""Our spout as a component of a Storm topology, or of any host of the multilang protocol.

What reads Kinesis is ``kinesis_spout.plain``; how a component talks is ``multilang.component``. Begin with
``kinesis_component``.
"""

from kinesis_spout.storm.multilang.spout_component.kinesis_component import KinesisSpoutComponent
from kinesis_spout.storm.multilang.spout_component.record_values import FIELDS, DataForm, RecordValues

__all__ = ["FIELDS", "DataForm", "KinesisSpoutComponent", "RecordValues"]
