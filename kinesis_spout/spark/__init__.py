"""Kinesis on Spark: sessions, handlers, queries."""

from kinesis_spout.spark.dataframe import Collector
from kinesis_spout.spark.handlers import ArrowCollector
from kinesis_spout.spark.query import SpoutQuery
from kinesis_spout.spark.session import SETTINGS, session

__all__ = ["SETTINGS", "ArrowCollector", "Collector", "SpoutQuery", "session"]
