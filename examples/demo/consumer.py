"""The consuming process: Spark and one query on it. This is the part of the demo that a user would write.

It is started as ``python -m examples.demo.consumer SETTINGS``, writes its state into a file for the
demo to show, and stops in order when its standard input ends.
"""

import logging
import os
import select
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from examples.demo.booking import BookDeparture
from kinesis_spout import KinesisSpout
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.spark import session
from kinesis_spout.spark.driver.query import SpoutQuery
from kinesis_spout.spark.session import socket_settings

APP: Final = "demo"
SESSION_TIMEOUT_SECONDS: Final = 5.0
"""A killed consumer's shards are free after it: about as long as Spark takes to start again."""
RETRY_LIMIT: Final = 3

_STATUS_SECONDS: Final = 0.2


class ConsumerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the consumer is told."""

    endpoint_url: str
    region: str
    stream: str
    zookeeper: str
    directory: str
    """The demo's; the ledger, the dead letters and the status are in it."""
    run: int
    """Which start of the consumer this is, from 1."""
    seed: int


class ConsumerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the consumer says of itself, a few times a second."""

    run: int
    spark_seconds: float | None = None
    """How long Spark took to start; None while it starts."""
    in_flight: int = 0
    """Records handed out, and not acked or failed yet."""
    waiting: int = 0
    """Records that wait for their retry."""
    error: str | None = None
    """The newest error that is being retried."""


def ledger_directory(directory: Path) -> Path:
    """Say where the handler writes down what it does."""
    return directory / "ledger"


def dead_letter_directory(directory: Path) -> Path:
    """Say where the dead letters are."""
    return directory / "dead-letters"


def status_file(directory: Path) -> Path:
    """Say where the consumer's status is."""
    return directory / "consumer-status.json"


def consume(settings: ConsumerSettings) -> None:
    """Run the query until standard input ends, or the query does."""
    directory = Path(settings.directory)
    _tell(directory, ConsumerStatus(run=settings.run))
    started = time.monotonic()
    spark = session(
        "demo",
        "local[2]",
        spark__ui__enabled="false",
        # A JVM that is killed leaves its files behind; here they go with the rest.
        spark__local__dir=str(directory),
        spark__driver__extraJavaOptions=f"-Djava.io.tmpdir={directory} -XX:-UsePerfData",
        spark__driver__host="127.0.0.1",
        spark__driver__bindAddress="127.0.0.1",
        **(socket_settings(directory) or {"spark.python.unix.domain.socket.dir": str(directory)}),
    )
    spark.sparkContext.setLogLevel("WARN")
    spark_seconds = time.monotonic() - started
    config = SpoutConfig.of(
        stream=settings.stream,
        app=APP,
        endpoint_url=settings.endpoint_url,
        region=settings.region,
        zookeeper=settings.zookeeper,
        session_timeout_seconds=SESSION_TIMEOUT_SECONDS,
        initial_position="trim_horizon",
        shard_list_interval_seconds=2.0,
        max_batch_seconds=2.0,
        retry_limit=RETRY_LIMIT,
        retry_backoff_seconds=0.3,
        dead_letters=str(dead_letter_directory(directory)),
    )
    handler = BookDeparture(ledger=ledger_directory(directory), run=settings.run, seed=settings.seed)
    with KinesisSpout(config).foreach_record(spark, handler) as query:
        while query.isActive and not _input_ended(_STATUS_SECONDS):
            _tell(directory, _status(query, settings.run, spark_seconds))
    error = query.exception()
    if error is not None:
        raise error
    spark.stop()


def _status(query: SpoutQuery, run: int, spark_seconds: float) -> ConsumerStatus:
    shards = query.shards()
    error = query.last_error
    return ConsumerStatus(
        run=run,
        spark_seconds=spark_seconds,
        in_flight=sum(shard.in_flight for shard in shards),
        waiting=sum(shard.waiting for shard in shards),
        error=None if error is None else str(error),
    )


def _tell(directory: Path, status: ConsumerStatus) -> None:
    # Renamed into place: a reader never sees half of it, not even if this process is killed here.
    fresh = status_file(directory).with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(status))
    fresh.replace(status_file(directory))


def _input_ended(timeout_seconds: float) -> bool:
    readable, _, _ = select.select([sys.stdin], [], [], timeout_seconds)
    return bool(readable) and not os.read(sys.stdin.fileno(), 1024)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    consume(msgspec.json.decode(sys.argv[1], type=ConsumerSettings))
