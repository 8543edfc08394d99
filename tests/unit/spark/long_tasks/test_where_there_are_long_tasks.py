"""Where tasks that stay are used at all."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from kinesis_spout.spark.long_tasks.spark_cluster import SparkCluster, long_tasks_of, with_long_tasks

if TYPE_CHECKING:
    from pyspark import SparkContext

    from kinesis_spout.spark.long_tasks.long_task import LongTasks
    from kinesis_spout.spark.long_tasks.long_task_runner import Jobs

CLUSTER = "spark://somewhere:7077"


def context(master: str, application: str = "app-1", **conf: str) -> "SparkContext":
    settings = {"spark.driver.host": "127.0.0.1"} | {name.replace("__", "."): conf[name] for name in conf}
    made = SimpleNamespace(master=master, applicationId=application, getConf=lambda: settings, _jsc=None)
    return cast("SparkContext", made)


@pytest.mark.parametrize("master", ["local[2]", CLUSTER])
def test_all_queries_of_an_application_share_theirs(master: str) -> None:
    first = long_tasks_of(context(master, f"of {master}"))

    assert first is not None
    assert long_tasks_of(context(master, f"of {master}")) is first
    assert long_tasks_of(context(master, f"another of {master}")) is not first


@pytest.mark.parametrize(
    ("master", "conf", "there_are"),
    [
        (CLUSTER, {"spark__speculation": "true"}, False),
        ("local[2]", {"spark__speculation": "true"}, False),
        (CLUSTER, {"spark__network__crypto__enabled": "true"}, False),
        (CLUSTER, {"spark__ssl__enabled": "true"}, False),
        ("local[2]", {"spark__network__crypto__enabled": "true"}, True),
        (CLUSTER, {"spark__network__crypto__enabled": "false"}, True),
    ],
)
def test_there_are_none_where_tasks_are_copied_or_traffic_is_encrypted(
    master: str, conf: dict[str, str], *, there_are: bool
) -> None:
    assert (long_tasks_of(context(master, **conf)) is not None) is there_are


def test_no_seconds_make_each_micro_batch_a_job() -> None:
    jobs = cast("Jobs", object())

    assert with_long_tasks(jobs, context("local[2]"), life_seconds=0.0) is jobs
    assert with_long_tasks(jobs, context("local[2]"), life_seconds=1.0) is not jobs


def test_a_context_that_was_stopped_has_no_slots(caplog: pytest.LogCaptureFixture) -> None:
    stopped = SparkCluster(context("local[2]"), cast("LongTasks", None))

    assert stopped.slots() == 0
    assert stopped.has_waiting_tasks()
    assert "does not tell" in caplog.text
