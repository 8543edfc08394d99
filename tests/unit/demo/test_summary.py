import io
import json
import re
from collections.abc import Sequence

import pytest
from rich.console import Console

from examples.demo.milestones import Join, Kill
from examples.demo.report import print_report
from examples.demo.summary import Summary, Tally, tally
from kinesis_spout.model.record import DeadLetter

KILL = Kill(
    run=1,
    pid=42,
    unfinished=17,
    repeated=3,
    taken_over_seconds=3.4,
    resumed_seconds=6.1,
    spark_seconds=5.0,
    again=Join(pid=43, first_record_seconds=0.8, share_seconds=1.2, owned=2, open_shards=4),
)


def summary(books: Tally, *, unfinished: str | None = None, examples: Sequence[DeadLetter] = ()) -> Summary:
    return Summary(
        engine="kinesis-local",
        tally=books,
        retries=5,
        recovered=2,
        ends_shards=True,
        splits=1,
        merges=1,
        second=Join(pid=41, first_record_seconds=0.4, share_seconds=0.9, owned=2, open_shards=4),
        kills=(KILL,),
        seconds=61.23,
        unfinished=unfinished,
        examples=tuple(examples),
    )


def report(of: Summary, *, width: int = 1_000) -> str:
    text = io.StringIO()
    print_report(Console(file=text, width=width, force_terminal=True, no_color=True), of)
    return re.sub(r"\x1b\[[0-9;]*m", "", text.getvalue())


def test_every_record_acked_or_dead_lettered_is_exit_code_0() -> None:
    books = tally(4, {0: 1, 1: 1, 3: 1}, {2})
    assert books == Tally(produced=4, acked=3, dead_lettered=1, lost=(), duplicates=0)
    assert summary(books).exit_code == 0
    assert "Nothing was lost" in report(summary(books))


def test_a_lost_record_is_exit_code_1_and_is_named() -> None:
    books = tally(4, {0: 1, 3: 1}, {2})
    assert books.lost == (1,)
    assert books.finished == 3
    assert summary(books).exit_code == 1
    text = report(summary(books))
    assert "Lost 1 records, with these ids first: 1" in text
    assert "Nothing was lost" not in text


def test_a_record_handled_twice_is_a_duplicate_and_no_reason_to_fail() -> None:
    books = tally(2, {0: 3, 1: 1}, set())
    assert (books.acked, books.duplicates) == (2, 1)
    assert summary(books).exit_code == 0


def test_records_that_are_not_on_the_stream_yet_are_not_counted() -> None:
    assert tally(1, {0: 1, 1: 1}, {2}) == Tally(produced=1, acked=1, dead_lettered=0, lost=(), duplicates=0)


def test_what_was_not_finished_in_time_is_exit_code_1_and_is_said() -> None:
    late = summary(tally(1, {0: 1}, set()), unfinished="by the time-out 1 of 2 records were produced")
    assert late.exit_code == 1
    assert "Not finished: by the time-out 1 of 2" in report(late)


def test_as_json_it_has_the_counts_that_a_check_needs() -> None:
    counts = json.loads(json.dumps(summary(tally(5, {0: 1, 1: 2}, {2, 3})).as_json()))
    expected = {"produced": 5, "acked": 2, "dead_lettered": 2, "lost": 1, "duplicates": 1, "retries": 5}
    assert {name: counts[name] for name in expected} == expected
    (kill,) = counts["kills"]
    before = {"pid": 42, "unfinished": 17, "resumed_seconds": 6.1, "spark_seconds": 5.0}
    assert {name: kill[name] for name in before} == before
    assert (kill["repeated"], kill["taken_over_seconds"], kill["again"]["share_seconds"]) == (3, 3.4, 1.2)
    assert counts["second"]["share_seconds"] == 0.9


@pytest.mark.parametrize(("attempts", "text"), [(1, "after 1 attempt:"), (4, "after 4 attempts:")])
def test_the_report_shows_dead_letters_with_their_errors(attempts: int, text: str) -> None:
    letter = DeadLetter(
        application="demo",
        stream="flights",
        shard_id="shardId-000000000000",
        sequence_number="1",
        partition_key="N1",
        arrival_timestamp=None,
        data=b"{}",
        attempts=attempts,
        error="CancelledFlightError: [no] departure",
        reason="exhausted",
        died_at=0.0,
    )
    shown = report(summary(tally(1, {}, {0}), examples=[letter]))
    assert f"exhausted {text} CancelledFlightError: [no] departure" in shown
    assert "pid 42" in shown
    assert "3 records were handled again" in shown


def test_the_report_fits_a_terminal_of_80_columns() -> None:
    shown = report(summary(tally(12_000, dict.fromkeys(range(12_000), 2), set())), width=80)
    assert max(map(len, shown.splitlines())) <= 80
