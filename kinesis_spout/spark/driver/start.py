"""From settings to a running query."""

import math

from pyspark import SparkContext

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.consumer.open_ports import client_settings
from kinesis_spout.consumer.ports import Ports
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.spark.driver.engine import MicroBatchEngine
from kinesis_spout.spark.driver.engine_settings import EngineSettings
from kinesis_spout.spark.driver.query import SpoutQuery
from kinesis_spout.spark.tasks.jobs import BatchRunner
from kinesis_spout.spark.tasks.task import TaskSettings
from shard_state import Order


def task_settings(config: SpoutConfig, parallelism: int) -> TaskSettings:
    """Say what every task needs to know.

    Args:
        config: the query's.
        parallelism: how many tasks may run at a time.
    """
    # A batch that goes on for as long as it may must not look like one that hangs: it handles for twice this time
    # at most, and has as long again for its first fetch.
    timeout = config.message_timeout_seconds or math.inf
    return TaskSettings(
        stream=config.stream,
        client=client_settings(config),
        order=Order(config.order),
        fail_on_data_loss=config.fail_on_data_loss,
        records_per_fetch=config.max_records_per_fetch,
        bytes_per_slice=config.max_bytes_per_slice,
        max_seconds=min(config.max_batch_seconds, timeout / 4),
        max_left_bytes=config.max_buffered_bytes // 4 // parallelism,
    )


def start_query(
    config: SpoutConfig,
    ports: Ports,
    context: SparkContext,
    runner: BatchRunner,
    name: str | None,
    *,
    door: str,
) -> SpoutQuery:
    """Start a query; its handle's ``stop`` closes the ports. A start that fails closes them as well.

    Args:
        config: the settings.
        ports: what to read from, and where progress and dead letters go.
        context: what the jobs run on.
        runner: runs them.
        name: the query's; the application's unless given.
        door: what the user called, for the log.
    """
    # The engine times out whole jobs: the records inside one are not tracked one by one.
    consumer = Consumer(config, ports, message_timeout_seconds=None, door=door)
    settings = EngineSettings(
        parallelism=context.defaultParallelism,
        shards_per_task=config.shards_per_task,
        max_concurrent_batches=config.max_concurrent_batches,
        records_per_fetch=config.max_records_per_fetch,
        poll_seconds=config.poll_interval_seconds,
        idle_poll_seconds=max(config.poll_interval_seconds, config.idle_poll_interval_seconds),
        max_buffered_bytes=config.max_buffered_bytes,
        batch_timeout_seconds=config.message_timeout_seconds,
    )
    engine = MicroBatchEngine(consumer, runner, settings, name or config.app)
    try:
        engine.start()
    except BaseException:
        consumer.close(commit=False)
        raise
    return SpoutQuery(consumer, engine, name or config.app)
