"""What is said of a Python that lacks what this package needs, and how a worker of Spark ends."""

import re
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.processes.executor_python import check_packages, end_quietly, unfit_python


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


def daemon_named(name: str | None) -> ModuleType:
    """Give the main module of a worker whose connection to Spark is gone."""
    daemon = ModuleType("__main__")
    daemon.__spec__ = None if name is None else ModuleSpec(name, None)

    def worker(*_: object) -> int:
        raise BrokenPipeError

    daemon.worker = worker  # type: ignore[attr-defined]
    return daemon


def test_a_worker_whose_spark_is_gone_ends_without_a_traceback() -> None:
    daemon = daemon_named("pyspark.daemon")
    end_quietly(daemon)
    assert daemon.worker("socket", False) == 1


@pytest.mark.parametrize("name", [None, "daemons_of_others"])
def test_the_main_module_of_another_program_stays_as_it_is(name: str | None) -> None:
    daemon = daemon_named(name)
    end_quietly(daemon)
    with pytest.raises(BrokenPipeError):
        daemon.worker("socket", False)
