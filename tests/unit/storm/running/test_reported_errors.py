"""Errors of a task: exact counts, and a log that a flood does not fill."""

import logging
from typing import Any

import pytest

from kinesis_spout.storm import Stream, Tuple
from kinesis_spout.storm.running.collecting import MOST_LINES, ReportedErrors
from kinesis_spout.storm.running.counts import ComponentCounts
from kinesis_spout.storm.spark.own_spout import GatheringCollector
from kinesis_spout.testing import ManualClock
from tests.support.storm.scripted_topology import Scripted, begin, singles


def test_a_flood_fills_no_log_and_every_error_counts(caplog: pytest.LogCaptureFixture) -> None:
    clock, counts = ManualClock(), ComponentCounts()
    errors = ReportedErrors("component flood", counts, clock.monotonic)
    for number in range(500):
        errors.report(ValueError(f"number {number}"))
    assert (counts.errors, counts.last_error) == (500, "ValueError: number 499")
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        *(f"component flood: ValueError: number {number}" for number in range(MOST_LINES)),
        f"component flood has more than {MOST_LINES} errors a minute; the others are only counted",
    ]

    clock.advance(60)
    errors.report(ValueError("later"))
    errors.report(ValueError("still later"))
    assert [record.getMessage() for record in caplog.records[len(lines) :]] == [
        "component flood: ValueError: later (490 errors before it were left out of the log)",
        "component flood: ValueError: still later",
    ]


def reports_and_raises(bolt: Scripted, tup: Tuple) -> None:
    bolt.collector.report_error(ValueError(f"reported {tup[0]}"))
    bolt.collector.ack(tup)
    raise ValueError(f"raised {tup[0]}")


def acks_and_reports(bolt: Scripted, tup: Tuple) -> None:
    bolt.collector.ack(tup)
    bolt.collector.report_error(ValueError(f"reported {tup[0]}"))


@pytest.mark.parametrize(("script", "each"), [(reports_and_raises, 2), (acks_and_reports, 1)])
def test_a_bolt_has_one_pace_for_what_it_reports_and_for_what_it_raises_after_an_ack(
    script: Any, each: int, caplog: pytest.LogCaptureFixture
) -> None:
    builder = begin()
    builder.set_bolt("flood", Scripted(script)).shuffle_grouping("numbers")
    with caplog.at_level(logging.WARNING):
        counts = builder.build().run_local(singles(100)).counts["flood"]
    assert counts.errors == 100 * each
    assert len(caplog.records) == MOST_LINES + 1


def test_a_spout_has_the_same_pace(caplog: pytest.LogCaptureFixture) -> None:
    collector = GatheringCollector("mine", {"default": Stream(("value",))})
    for number in range(100):
        collector.report_error(ValueError(f"number {number}"))
    assert (collector.counts.errors, collector.counts.last_error) == (100, "ValueError: number 99")
    assert len(caplog.records) == MOST_LINES + 1
    assert caplog.records[0].getMessage() == "spout mine: ValueError: number 0"
