"""The import contract keeps the protocol's modules pure; this looks at what a component loads when it starts."""

import subprocess
import sys

import pytest


def loaded_by(module: str) -> set[str]:
    code = f"import sys, {module}; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(found.stdout.split())


@pytest.mark.parametrize("module", ["bolts_and_spouts", "kinesis_component", "__main__"])
def test_a_component_starts_without_spark(module: str) -> None:
    assert not loaded_by(f"kinesis_spout.storm.multilang.{module}") & {"pyspark", "py4j"}


def test_a_users_component_starts_without_kinesis_or_zookeeper() -> None:
    heavy = {"boto3", "botocore", "kazoo", "numpy", "pandas", "pyarrow", "typer"}
    loaded = loaded_by("kinesis_spout.storm.multilang.bolts_and_spouts")
    assert not loaded & heavy
