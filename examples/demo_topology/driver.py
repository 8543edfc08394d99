"""The driver: a session and the topology on it.

It is started as ``python -m examples.demo_topology.driver SETTINGS``. When its standard input ends it finishes
what is on the stream, and stops in order.
"""

import logging
import time
from pathlib import Path

import msgspec

from examples.demo.consumers.on_spark import local_session
from examples.demo.consumers.settings import STATUS_SECONDS, ConsumerSettings, ConsumerStatus, input_ended
from examples.demo_topology.troubled_topology import COUNT, SPLIT, troubled_topology
from kinesis_spout.topology.spark.query import TopologyQuery


class DriverStatus(ConsumerStatus, frozen=True, kw_only=True):
    """What a driver says of itself, besides what every consumer of the demo does. Since its start."""

    acked: int = 0
    retried: int = 0
    commits: int = 0
    failed_in_split: int = 0
    failed_in_count: int = 0


def run(settings: ConsumerSettings) -> None:
    """Run the topology until standard input ends, or the query does."""
    started = time.monotonic()
    spark = local_session(Path(settings.directory))
    now = time.monotonic()
    status = DriverStatus(joined_at=now, spark_seconds=now - started)
    status.tell(settings)
    with troubled_topology(settings).run(spark) as query:
        while query.isActive and not input_ended(STATUS_SECONDS):
            _now(status, query).tell(settings)
        query.processAllAvailable()
        _now(status, query).tell(settings)
    error = query.exception()
    if error is not None:
        raise error
    spark.stop()


def _now(status: DriverStatus, query: TopologyQuery) -> DriverStatus:
    (spout,) = query.spouts.values()
    components = query.components
    return msgspec.structs.replace(
        status.now(spout.shards(), spout.last_error),
        acked=spout.counters.acked,
        retried=spout.counters.retried,
        commits=spout.counters.commits,
        failed_in_split=components[SPLIT].failed if SPLIT in components else 0,
        failed_in_count=components[COUNT].failed if COUNT in components else 0,
    )


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    run(ConsumerSettings.of_command_line())
