"""Registers the fixtures that test modules share (a module comes after those it imports), sets Hypothesis up."""

import hypothesis

# A busy machine is no fault: no test here is about how long it takes.
hypothesis.settings.register_profile("no deadline", deadline=None, print_blob=True)
hypothesis.settings.load_profile("no deadline")

pytest_plugins = [
    "tests.zookeeper_server",
    "tests.zookeeper_places",
    "tests.kinesis_endpoints",
    "tests.streams_under_test",
    "tests.spark_session",
    "tests.micro_batch_world",
    "tests.wheel.installed_wheel",
    "tests.wheel.readers_shell",
]
