"""Reliable Kinesis consumption for PySpark."""
