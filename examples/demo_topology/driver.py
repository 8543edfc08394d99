"""The driver: a session and the topology on it.

It is started as ``python -m examples.demo_topology.driver SETTINGS``. When its standard input ends it finishes
what is on the stream, and stops in order.
"""

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from examples.demo.consumers.on_spark import local_session
from examples.demo.consumers.settings import STATUS_SECONDS, ConsumerSettings, ConsumerStatus, input_ended
from examples.demo_topology.troubled_topology import COUNT, SPLIT, troubled_topology
from kinesis_spout.storm.spark.topology_query import TopologyQuery


class DriverStatus(ConsumerStatus, frozen=True, kw_only=True):
    """What a driver says of itself, besides what every consumer of the demo does. Since its start."""

    acked: int = 0
    stored: int = 0
    """Of those, which are stored as acked, as of the newest micro-batch: what is not comes again after a kill."""
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
    components, progress = query.components, query.lastProgress
    return msgspec.structs.replace(
        status.now(spout.shards(), spout.last_error),
        acked=spout.counters.acked,
        stored=0 if progress is None else _stored(progress),
        retried=spout.counters.retried,
        commits=spout.counters.commits,
        failed_in_split=components[SPLIT].failed if SPLIT in components else 0,
        failed_in_count=components[COUNT].failed if COUNT in components else 0,
    )


def _stored(progress: Mapping[str, Any]) -> int:
    uncommitted = int(progress["sources"][0]["metrics"]["numUncommittedRecords"])
    return max(0, int(progress["totals"]["acked"]) - uncommitted)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    run(ConsumerSettings.of_command_line())
