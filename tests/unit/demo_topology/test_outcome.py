"""What the demo of topologies says of its outcome: what is wrong, what did not happen, and how it is shown."""

import io
import json
from collections import Counter
from dataclasses import replace

import pytest
from rich.console import Console

from examples.demo_topology.outcome import Kill, Outcome
from examples.demo_topology.report import print_report

KILL = Kill(pid=42, unfinished=17, committed_words=1_000, resumed_seconds=9.5)
RIGHT = Outcome(
    engine="kinesis-local",
    sentences=5_000,
    dead_lettered=40,
    retried=300,
    acked_again=560,
    failed_in_split=100,
    failed_in_count=120,
    killed_worker=43,
    kill=KILL,
    counted={"storm": 7, "spout": 5},
    recounted={"storm": 7, "spout": 5},
    seconds=61.2,
)


def printed(outcome: Outcome) -> str:
    output = io.StringIO()
    print_report(Console(file=output, width=80), outcome)
    return output.getvalue()


def test_right_counts_after_every_trouble_are_a_success() -> None:
    assert RIGHT.exit_code == 0
    shown = printed(RIGHT).replace("\n", " ")
    assert "Every count is exact: each sentence counted once" in shown
    assert "61 s in all." in shown


@pytest.mark.parametrize(
    "counted", [{"storm": 8, "spout": 5}, {"storm": 7}, {"storm": 7, "spout": 5, "bolt": 1}]
)
def test_a_count_that_differs_in_either_way_is_a_failure_that_names_the_word(counted: dict[str, int]) -> None:
    wrong = replace(RIGHT, counted=counted)
    assert wrong.exit_code == 1
    assert "Wrong counts: of 1 of " in printed(wrong)
    (word,) = wrong.wrong
    assert word in printed(wrong)


@pytest.mark.parametrize(
    ("outcome", "what"),
    [
        (replace(RIGHT, failed_in_split=0), "failed in split"),
        (replace(RIGHT, failed_in_count=0), "after it was counted"),
        (replace(RIGHT, dead_lettered=0), "a dead letter"),
        (replace(RIGHT, retried=0), "a retry"),
        (replace(RIGHT, killed_worker=None), "a killed Python worker"),
        (replace(RIGHT, kill=None), "a driver killed"),
        (replace(RIGHT, kill=replace(KILL, unfinished=0)), "a driver killed"),
    ],
)
def test_a_trouble_that_did_not_happen_is_a_failure(outcome: Outcome, what: str) -> None:
    assert outcome.exit_code == 1
    assert f"Did not happen, although it should have: {outcome.missing[0]}" in " ".join(
        printed(outcome).split()
    )
    assert what in outcome.missing[0]


def test_as_json_it_has_the_counts_the_kill_and_the_judgement() -> None:
    said = json.loads(json.dumps(replace(RIGHT, recounted=Counter(storm=7, spout=6)).as_json()))
    assert said["recounted"] == {"storm": 7, "spout": 6}
    assert said["wrong"] == {"spout": [5, 6]}
    assert said["kill"]["unfinished"] == 17
    assert said["missing"] == []


def test_the_report_fits_80_columns() -> None:
    assert max(map(len, printed(RIGHT).splitlines())) <= 80
