"""What is said of a Python that lacks what this package needs."""

import re
import sys

import pytest

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.processes.executor_python import check_packages, unfit_python


def test_a_python_that_has_everything_passes() -> None:
    check_packages()


def test_a_python_that_lacks_packages_is_told_in_one_line_with_what_to_set() -> None:
    with pytest.raises(
        InvalidConfig,
        match=rf"^[^\n]*{re.escape(sys.executable)} lacks boto3, pyarrow\. [^\n]*PYSPARK_PYTHON[^\n]*$",
    ):
        check_packages(lambda name: name not in {"boto3", "pyarrow"})


def test_the_driver_knows_this_error_again_and_names_its_own_python() -> None:
    with pytest.raises(InvalidConfig) as told:
        check_packages(lambda name: name not in {"boto3", "pyarrow"})
    said = unfit_python(f"Traceback (most recent call last):\n  InvalidConfig: {told.value}\nSQLSTATE: 38000")
    assert said is not None
    assert "lacks boto3, pyarrow. Set" in said
    assert f"in local mode to {sys.executable}," in said
