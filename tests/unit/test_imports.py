"""What is loaded when: each door loads what it uses when it opens, and not before.

Importing boto3 takes 0.35 s of CPU, pyarrow with numpy 0.3 s and 40 MB, in every Python worker of an executor too.
"""

import subprocess
import sys
from functools import cache

import pytest

_COLUMNS = {"numpy", "pyarrow"}
_SPARK = {"py4j", "pyspark"}
_OTHERS = {
    "google.protobuf",
    "opentelemetry",
    "pandas",
    "prometheus_client",
    "s3transfer",
    "typer",
    "uvicorn",
}
_CONNECTIONS = {"boto3", "botocore.session", "kazoo", "urllib3"}


@pytest.mark.parametrize(
    ("program", "unwanted"),
    [
        ("from kinesis_spout import KinesisSpout", _CONNECTIONS | _COLUMNS | _SPARK | _OTHERS),
        ("from kinesis_spout import KinesisProducer", _CONNECTIONS | _COLUMNS | _SPARK | _OTHERS),
        (
            "from kinesis_spout import KinesisSpout; KinesisSpout(stream='s', app='a')",
            _CONNECTIONS | _COLUMNS,
        ),
        ("import kinesis_spout.consumer.open_ports", _COLUMNS | _SPARK | _OTHERS - {"s3transfer"}),
        ("import kinesis_spout.cli.app", {"boto3", "botocore.session"} | _COLUMNS | _SPARK),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_nothing_is_loaded_that_is_not_used_yet(program: str, unwanted: set[str]) -> None:
    assert loaded(program) & unwanted == set()


@pytest.mark.parametrize(
    ("program", "unwanted"),
    [
        ("from kinesis_spout import register, session", _CONNECTIONS | _COLUMNS | _OTHERS),
        ("import kinesis_spout.spark.tasks.handler_runner", {"kazoo"} | _COLUMNS | _OTHERS - {"s3transfer"}),
        ("import pyspark_kinesis", _CONNECTIONS | _COLUMNS | _OTHERS),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_nothing_is_loaded_besides_spark_that_is_not_used_yet(program: str, unwanted: set[str]) -> None:
    # PySpark 4.0 loads numpy.
    assert (loaded(program) - loaded("import pyspark.sql.datasource")) & unwanted == set()


@cache
def loaded(program: str) -> set[str]:
    """Give the modules that there are when a program has ended."""
    script = f"{program}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_records_are_read_without_columns() -> None:
    script = (
        "import sys\n"
        "from kinesis_spout.kinesis import PollingShardGetter\n"
        "from kinesis_spout.testing import InMemoryShardLister, InMemoryStream\n"
        "from shard_state import Position\n"
        "from tests.support.kinesis.in_memory_client import InMemoryKinesisClient\n"
        "stream, start = InMemoryStream('s'), Position.trim_horizon()\n"
        "stream.put(b'x', 'key')\n"
        "client, lister = InMemoryKinesisClient(stream), InMemoryShardLister(stream)\n"
        "named = {'stream': 's', 'shard_id': 'shardId-000000000000'}\n"
        "getter = PollingShardGetter(client, position=start, lister=lister, **named)\n"
        "print(getter.read(10).records[0].data, 'pyarrow' in sys.modules, 'google.protobuf' in sys.modules)\n"
        "print(getter.read_arrow(10).batch.num_rows, 'pyarrow' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["b'x' False False", "0 True"]
