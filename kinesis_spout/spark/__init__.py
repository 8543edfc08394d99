"""Kinesis on Spark: sessions, handlers, queries."""

from kinesis_spout.spark.dataframe.dataframe_runner import Collector
from kinesis_spout.spark.driver.query import SpoutQuery
from kinesis_spout.spark.per_record.each_record import RecordOutcomes, each_record
from kinesis_spout.spark.session import LOCAL_CHECKPOINTS, SETTINGS, register, session
from kinesis_spout.spark.tasks.handlers import ArrowCollector
from kinesis_spout.structured.progress_listener import (
    KinesisProgress,
    KinesisProgressListener,
    kinesis_progress,
)

__all__ = [
    "LOCAL_CHECKPOINTS",
    "SETTINGS",
    "ArrowCollector",
    "Collector",
    "KinesisProgress",
    "KinesisProgressListener",
    "RecordOutcomes",
    "SpoutQuery",
    "each_record",
    "kinesis_progress",
    "register",
    "session",
]
