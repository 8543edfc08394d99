"""The options of a streaming read, as one frozen value that is valid."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kinesis_spout.kinesis import KinesisClientSettings
from kinesis_spout.structured.options.connection import checked_by_spout, client_settings, streams_to_read
from kinesis_spout.structured.options.given import GivenOptions
from kinesis_spout.structured.options.position_text import start_positions
from kinesis_spout.structured.options.positions import StartPositions
from kinesis_spout.structured.options.reads import check_consumer_mode, extra_columns, one_stream_per_shard
from kinesis_spout.structured.options.tables.specs import Use


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReadOptions:
    """What ``spark.readStream.format("kinesis")`` was told. Can be pickled; secrets stay out of its text."""

    streams: tuple[str, ...]
    """Names, or ARNs."""
    client: KinesisClientSettings
    start: StartPositions
    """LATEST is not resolved here."""
    max_records_per_fetch: int
    max_fetch_bytes_per_second: int
    """Of one shard."""
    fetch_period_seconds: float
    idle_fetch_period_seconds: float
    """At least ``fetch_period_seconds``."""
    shard_list_seconds: float
    shards_per_task: int | None
    bytes_per_task: int
    max_records_per_trigger: int | None
    max_bytes_per_trigger: int | None
    min_records_per_trigger: int | None
    max_trigger_delay_seconds: float
    """Means something with ``min_records_per_trigger`` only."""
    max_arrival_skew_seconds: float
    """How much earlier than a record of a batch one may have arrived that comes in a later batch."""
    max_buffered_bytes: int
    fetch_threads: int
    """At least ``fetch_processes``: each has a thread that waits for it."""
    fetch_processes: int
    fail_on_data_loss: bool
    extra_columns: tuple[str, ...]
    log_level: str
    """As ``logging`` calls it."""
    page_host: str | None
    """How the executors reach the driver; None: found out."""
    checkpoint_app: str | None
    zookeeper: str | None
    """Set if and only if ``checkpoint_app`` is."""
    zookeeper_root: str
    progress_from: Literal["spark", "zookeeper"]
    """Which progress wins at the start, where both are there."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "StreamReadOptions":
        """Read the options as Spark hands them over.

        Raises:
            InvalidConfig: names the option that is unknown, wrong, or contradicts another.
        """
        given = GivenOptions(options, Use.STREAM_READ)
        check_consumer_mode(given)
        streams = streams_to_read(given)
        start = given.positions("initialPosition", start_positions)
        one_stream_per_shard(given, "initialPosition", streams, start.shards)
        processes = given.count("fetchProcesses")
        threads = max(processes, given.count("fetchThreads"))
        fetch_period, idle_fetch_period = _fetch_periods(given)
        least = _min_records_per_trigger(given)
        app, zookeeper, root, progress_from = _published_progress(given)
        return cls(
            streams=streams,
            client=client_settings(given, streams, connections=threads),
            start=start,
            max_records_per_fetch=given.count("maxRecordsPerFetch"),
            max_fetch_bytes_per_second=given.bytes_per_second("maxFetchRate"),
            fetch_period_seconds=fetch_period,
            idle_fetch_period_seconds=idle_fetch_period,
            shard_list_seconds=given.seconds("shardFetchInterval"),
            shards_per_task=given.optional_count("shardsPerTask"),
            bytes_per_task=given.size("bytesPerTask"),
            max_records_per_trigger=given.optional_count("maxRecordsPerTrigger"),
            max_bytes_per_trigger=given.optional_size("maxBytesPerTrigger"),
            min_records_per_trigger=least,
            max_trigger_delay_seconds=given.seconds("maxTriggerDelay"),
            max_arrival_skew_seconds=given.seconds("maxArrivalSkew"),
            max_buffered_bytes=given.size("maxBufferedBytes"),
            fetch_threads=threads,
            fetch_processes=processes,
            fail_on_data_loss=given.flag("failOnDataLoss"),
            extra_columns=extra_columns(given),
            log_level=given.choice("logLevel").upper(),
            page_host=_page_host(given),
            checkpoint_app=app,
            zookeeper=zookeeper,
            zookeeper_root=root,
            progress_from=progress_from,
        )


def _fetch_periods(given: GivenOptions) -> tuple[float, float]:
    busy, idle = given.seconds("minFetchPeriod"), given.seconds("idleFetchPeriod")
    if idle < busy and "idleFetchPeriod" in given:
        raise given.refuse("idleFetchPeriod", f"expected at least minFetchPeriod, {busy:g} s, got {idle:g} s")
    return busy, max(busy, idle)


def _min_records_per_trigger(given: GivenOptions) -> int | None:
    least, most = given.optional_count("minRecordsPerTrigger"), given.optional_count("maxRecordsPerTrigger")
    if least is None and "maxTriggerDelay" in given:
        raise given.refuse("maxTriggerDelay", "expected minRecordsPerTrigger beside it, for which it waits")
    if least is not None and most is not None and least > most:
        raise given.refuse(
            "minRecordsPerTrigger", f"expected at most maxRecordsPerTrigger, {most}, got {least}"
        )
    return least


def _page_host(given: GivenOptions) -> str | None:
    host = given.text("pageServerHost")
    if host is not None and not re.fullmatch(r"[A-Za-z0-9_.-]{1,253}|[0-9A-Fa-f:.]{2,45}", host):
        raise given.refuse(
            "pageServerHost", f"expected a host's name or address, no port, got {host[:160]!r}"
        )
    return host


def _published_progress(
    given: GivenOptions,
) -> tuple[str | None, str | None, str, Literal["spark", "zookeeper"]]:
    app, zookeeper = given.text("checkpointApp"), given.text("zookeeper")
    for one, other in (("checkpointApp", "zookeeper"), ("zookeeper", "checkpointApp")):
        if one in given and other not in given:
            raise given.refuse(one, f"expected {other} beside it: progress is published with both, or not")
    for name in ("zookeeperRoot", "progressFrom"):
        if name in given and app is None:
            raise given.refuse(name, "expected checkpointApp and zookeeper beside it")
    root = given.text("zookeeperRoot") or ""
    if app is not None and zookeeper is not None:
        checked_by_spout("checkpointApp", "app", app)
        checked_by_spout("zookeeper", "zookeeper", zookeeper)
        checked_by_spout("zookeeperRoot", "zookeeper_root", root)
    return app, zookeeper, root, "zookeeper" if given.choice("progressFrom") == "zookeeper" else "spark"
