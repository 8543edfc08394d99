"""A consumer of the micro-batch door on Spark, as ``consumer`` is one of the plain door.

``python -m tests.fault.suite.consumers.spark_consumer JOB``. The handler runs in Spark's Python workers and writes
down each delivery itself; a worker that is new says so, for records may be delivered again when one has died.
"""

import os
import resource
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from kinesis_spout import KinesisSpout
from kinesis_spout.consumer.open_ports import open_ports
from kinesis_spout.model.handler import Reject
from kinesis_spout.model.record import Record
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.spark import session
from tests.fault.suite.consumers.consumer import (
    Handler,
    Job,
    LoggingSink,
    break_livez,
    shift_clock,
    tell_all,
)
from tests.fault.suite.consumers.delivery_log import DeliveryLog, Kind, RecordId
from tests.fault.suite.consumers.held_commit import hold_commits
from tests.fault.suite.consumers.payload import Act, Payload

_STEP_SECONDS = 0.2
_MEMORY_BYTES = 64 << 20
"""How much a worker may take beyond what it has, while a handler takes all it can get."""


class SparkHandler:
    """Called in a Python worker for each record. Pickled."""

    def __init__(self, job: Job, retry_limit: int) -> None:
        self._job = job
        self._retry_limit = retry_limit

    def __call__(self, record: Record) -> None:
        log, handle = _parts_of(self._job)
        named = RecordId(record.shard_id, record.sequence.number)
        payload = Payload.decode(record.data)
        log.add(Kind.DELIVERED, named, attempt=record.attempt)
        try:
            if payload.act is Act.MEMORY and record.attempt == 1:
                take_all_memory()
            handle(payload, record.attempt)
        except Exception as error:
            is_last = isinstance(error, Reject) or record.attempt > self._retry_limit
            log.add(Kind.EXHAUSTED if is_last else Kind.FAILED, named, attempt=record.attempt)
            raise
        log.add(Kind.HANDLED, named, attempt=record.attempt)


_parts: dict[tuple[int, str], tuple[DeliveryLog, Handler]] = {}
"""Of this worker, which was perhaps forked from another one."""


def _parts_of(job: Job) -> tuple[DeliveryLog, Handler]:
    key = os.getpid(), job.log
    if key not in _parts:
        _parts[key] = DeliveryLog(Path(job.log)), Handler(job)
        _parts[key][0].add(Kind.NEW_WORKER, RecordId("", 0))
    return _parts[key]


def take_all_memory() -> None:
    """Take memory until there is none: raises MemoryError."""
    with _little_memory():
        taken = []
        while True:
            taken.append(bytearray(_MEMORY_BYTES // 4))


@contextmanager
def _little_memory() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + _MEMORY_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def main() -> None:
    tell_all()
    job = msgspec.json.decode(sys.argv[1], type=Job)
    log = DeliveryLog(Path(job.log))
    shift_clock(Path(job.clock))
    if job.breaks_livez:
        break_livez()
    hold_commits(Path(job.hold), Path(job.held), job.hold_seconds)
    spark = session(
        "faults",
        "local[2]",
        spark__ui__enabled="false",
        spark__driver__bindAddress="127.0.0.1",
        spark__driver__host="127.0.0.1",
    )
    spark.sparkContext.setLogLevel("ERROR")
    config = SpoutConfig.of(**job.settings)
    ports = open_ports(config)
    ports = replace(ports, dead_letters=LoggingSink(ports.dead_letters, log, Path(job.sink)))
    limit = config.retry_limit
    assert limit is not None, "the suite sets one"
    query = KinesisSpout(config=config, ports=ports).foreach_record(spark, SparkHandler(job, limit))
    log.add(Kind.STARTED, RecordId("", 0))
    with query:
        while not select.select([sys.stdin], [], [], 0)[0]:
            query.awaitTermination(_STEP_SECONDS)  # raises what ended the query
    with suppress(Exception):  # it may be the one that was killed
        spark.stop()


if __name__ == "__main__":
    main()
