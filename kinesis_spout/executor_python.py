"""The Python that runs on the executors: how its failures show, and what to set.

PySpark starts ``python3`` from the PATH unless ``PYSPARK_PYTHON`` is set. So a driver that runs in a virtual
environment, with a session that it made itself, gets another Python on its executors, also in local mode.
"""

import re
import sys
from typing import Final

_NEEDED: Final = (
    "boto3",
    "botocore",
    "google",
    "kinesis_spout",
    "msgspec",
    "numpy",
    "pyarrow",
    "pybase64",
    "shard_state",
)
"""What every task imports. A Python that lacks one of them is not the one this package was installed into."""

_SIGNS: Final = re.compile(
    rf"No module named '(?:{'|'.join(_NEEDED)})'"
    r"|Python in worker has different version: [\d. ]+ than that in driver: [\d.]*\d"
    r"|Cannot run program \"[^\"]*python[^\"]*\""
)


def unfit_python(error_text: str) -> str | None:
    """Say in one line what to set, if an error of a Spark job is that of an unfit Python; else give None."""
    sign = _SIGNS.search(error_text)
    if sign is None:
        return None
    return (
        f"the Python of the executors does not fit: {sign.group()}. Set the environment variable PYSPARK_PYTHON "
        f"before the SparkSession starts: in local mode to {sys.executable}, on a cluster to a Python there of "
        f"version {sys.version_info.major}.{sys.version_info.minor} that kinesis-spout is installed in"
    )
