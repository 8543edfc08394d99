"""When the job of an own spout is cancelled. No job is run."""

import threading
from time import monotonic

import pytest

from kinesis_spout.storm.spark import job
from kinesis_spout.storm.spark.job import JobGuard
from tests.support.spark.spark_here import SparkHere
from tests.support.waiting import wait_until


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "_LOOK_SECONDS", 0.001)


def test_a_job_is_cancelled_when_it_takes_too_long_and_not_while_it_waits_for_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, asked, cancelled = threading.Event(), list[str](), list[str]()

    def has_begun(_: object, tag: str) -> bool:
        asked.append(tag)
        return begun.is_set()

    monkeypatch.setattr(job, "has_begun", has_begun)
    monkeypatch.setattr(job, "cancel", lambda _, tag: cancelled.append(tag))
    with JobGuard(SparkHere(), "job-1", 0.05):
        until = monotonic() + 0.2
        wait_until(
            lambda: monotonic() > until and len(asked) > 5, "it has waited for longer than it may take"
        )
        assert cancelled == []
        begun.set()
        wait_until(lambda: len(cancelled) > 3, "it is cancelled until it has ended")
    assert set(cancelled) == {"job-1"}


def test_a_job_that_ends_is_not_cancelled_and_nobody_watches_it_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cancelled: list[str] = []
    monkeypatch.setattr(job, "has_begun", lambda *_: True)
    monkeypatch.setattr(job, "cancel", lambda _, tag: cancelled.append(tag))
    with JobGuard(SparkHere(), "job-2", 60.0):
        watching = next(each for each in threading.enumerate() if each.name == "kinesis-spout-guard-job-2")
    watching.join(60)
    assert not watching.is_alive()
    assert cancelled == []
