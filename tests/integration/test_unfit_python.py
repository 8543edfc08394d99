"""``format("kinesis")`` in a session of one's own whose Python, PATH's ``python3``, is not this one.

In processes of their own, because Spark asks its Python only once what data sources there are.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_200)]

JOB = """
import sys
from pyspark.sql import SparkSession
from kinesis_spout.spark import register

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
options = {"streamName": "orders", "region": "us-east-1"}
doors = {
    "register": lambda: register(spark),
    "read": lambda: spark.read.format("kinesis").options(**options).load(),
    "readStream": lambda: spark.readStream.format("kinesis").options(**options).load(),
    "write": lambda: spark.range(1).selectExpr("cast('a' as binary) data", "'a' partitionKey")
        .write.format("kinesis").options(**options).mode("append").save(),
}
for name in sys.argv[1:]:
    try:
        doors[name]()
    except Exception as error:
        print(name, "|", type(error).__name__, "|", *str(error).strip().splitlines(), sep="\\t")
spark.stop()
"""


def what_doors_say(python_on_path: Path, *doors: str) -> dict[str, list[str]]:
    """Run the job without PYSPARK_PYTHON, and give the kind of each door's error and the lines that it says."""
    hidden = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    path = os.pathsep.join([str(python_on_path), environment["PATH"]])
    # The driver finds this checkout beside the job, which its workers are not told of.
    job = python_on_path / "job.py"
    job.write_text(f"import sys\nsys.path.insert(0, {str(REPOSITORY)!r})\n{JOB}")
    done = subprocess.run(
        [sys.executable, str(job), *doors],
        env=environment | {"PATH": path, "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=python_on_path,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    said = (line.split("\t|\t") for line in done.stdout.splitlines() if "\t|\t" in line)
    return {door: [kind, *text.split("\t")] for door, kind, text in said}


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A folder for the PATH, whose ``python3`` has no packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    return tmp_path / "bare" / "bin"


def test_register_says_what_to_set_where_spark_only_finds_no_data_source(bare_python: Path) -> None:
    said = what_doors_say(bare_python, "read", "register")

    assert "Failed to find the data source: kinesis" in " ".join(said["read"])
    kind, line = said["register"]
    assert kind == "InvalidConfig"
    assert line.startswith("the Python of the executors does not fit: No module named 'kinesis_spout'. ")
    assert f"PYSPARK_PYTHON before the SparkSession starts: in local mode to {sys.executable}," in line


def test_every_door_says_what_to_set_where_only_the_dependencies_are_missing(bare_python: Path) -> None:
    [site_packages] = bare_python.parent.glob("lib/python*/site-packages")
    (site_packages / "this_checkout.pth").write_text(str(REPOSITORY))

    said = what_doors_say(bare_python, "read", "readStream", "write", "register")

    assert len(said) == 4
    for lines in said.values():
        line = lines[-2] if "SQLSTATE" in lines[-1] else lines[-1]
        assert f"{bare_python / 'python3'} lacks boto3, botocore" in line
        assert "Set the environment variable PYSPARK_PYTHON before the SparkSession starts" in line
