"""Kinesis on Spark: sessions, handlers, queries.

The names here are loaded when they are first used: a task on an executor needs none of them.
"""

from typing import TYPE_CHECKING, Final

from kinesis_spout.model.extras import check_spark, lazy_names

if TYPE_CHECKING:
    from kinesis_spout.spark.dataframe.dataframe_runner import Collector
    from kinesis_spout.spark.driver.query import SpoutQuery
    from kinesis_spout.spark.driver.running_query import await_termination
    from kinesis_spout.spark.record_outcomes import RecordOutcomes, each_record
    from kinesis_spout.spark.sessions import LOCAL_CHECKPOINTS, SETTINGS, register, session
    from kinesis_spout.spark.tasks.handlers import ArrowCollector

__all__ = [
    "LOCAL_CHECKPOINTS",
    "SETTINGS",
    "ArrowCollector",
    "Collector",
    "RecordOutcomes",
    "SpoutQuery",
    "await_termination",
    "each_record",
    "register",
    "session",
]

_NAMES: Final = {
    "kinesis_spout.spark.dataframe.dataframe_runner": ("Collector",),
    "kinesis_spout.spark.driver.query": ("SpoutQuery",),
    "kinesis_spout.spark.driver.running_query": ("await_termination",),
    "kinesis_spout.spark.record_outcomes": ("RecordOutcomes", "each_record"),
    "kinesis_spout.spark.sessions": ("LOCAL_CHECKPOINTS", "SETTINGS", "register", "session"),
    "kinesis_spout.spark.tasks.handlers": ("ArrowCollector",),
}

check_spark("Spark")

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
