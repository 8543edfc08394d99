"""Registers the fixtures that test modules share. A module comes after those it imports."""

pytest_plugins = [
    "tests.zookeeper_server",
    "tests.zookeeper_places",
    "tests.kinesis_endpoints",
    "tests.streams_under_test",
    "tests.spark_session",
    "tests.micro_batch_world",
]
