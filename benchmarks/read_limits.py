"""Reading without Kinesis' read limits, which an endpoint that has none does not need.

Five reads and 2 MB a second are what a shard gives, so every client waits most of the time. What a client can do
by itself shows only without: so the benchmarks that read a backlog lift the limits for all who have a way to.

``python -m read_limits`` is the daemon that forks Spark's Python workers; they read without limits then.
"""

from typing import Final

from pyspark import daemon

from kinesis_spout.kinesis.pace import ReadPace

UNPACED_WORKERS: Final = {"spark.python.daemon.module": "read_limits"}
"""The setting of a session whose workers read without limits; this folder must be on their ``PYTHONPATH``."""


def lift_read_limits() -> None:
    """Let this process read a shard as often and as fast as it can."""
    ReadPace.seconds_for = lambda _pace, _size_bytes: 0.0  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    lift_read_limits()
    daemon.manager()
