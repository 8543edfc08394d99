"""Sinks of given-up records: folders, S3, HDFS, another stream.

``shard_state`` decides when a record is given up; ``operations`` puts it back. Begin with ``sink_url``.
"""

from kinesis_spout.dead_letters.json_lines import JsonLinesSink

__all__ = ["JsonLinesSink"]
