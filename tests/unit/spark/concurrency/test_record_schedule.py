"""The rules of concurrency: what begins when, what is held, and that nothing is left out."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.model.handler import Failure
from kinesis_spout.spark.concurrency.record_schedule import (
    ENDED,
    MOST_WAITING_FOR_A_KEY,
    NOT_BEGUN,
    UNDER_WAY,
    RecordSchedule,
    RunRules,
    Verdict,
)
from kinesis_spout.spark.tasks.journal import SliceNotes

FAILURE = Failure(error_text="no")


def run_of(
    keys: str, *, verdicts: Sequence[Verdict] = (), by_key: bool = True, **rules: Any
) -> RecordSchedule:
    """Make a run of records, each with a letter for its key; "-" has none."""
    rules = {"concurrency": 100} | rules
    return RecordSchedule(
        len(keys),
        RunRules(**rules),
        SliceNotes(None, 0),
        bytearray(len(keys)),
        key_of=(lambda at: None if keys[at] == "-" else keys[at]) if by_key else None,
        verdict=(lambda at: verdicts[at]) if verdicts else None,
    )


def take_all(run: RecordSchedule, now: float = 0.0) -> list[int]:
    taken = []
    while (at := run.take(now)) is not None:
        taken.append(at)
    return taken


def test_records_begin_in_their_order_and_so_many_at_a_time() -> None:
    run = run_of("-----", concurrency=2)

    assert take_all(run) == [0, 1]
    run.ended(1, None)
    assert take_all(run) == [2]
    assert list(run.under_way) == [0, 2]
    assert (run.reached, run.is_over) == (3, False)


def test_a_run_is_over_when_all_have_ended() -> None:
    run = run_of("--")
    take_all(run)
    over = []
    for at, failure in [(0, None), (1, FAILURE)]:
        run.ended(at, failure)
        over.append(run.is_over)

    assert over == [False, True]
    assert (run.reached, run.begun, run.failures, run.held) == (2, 2, {1: FAILURE}, [])


def test_a_record_waits_for_the_one_before_of_its_key_and_others_pass_it() -> None:
    run = run_of("aab-a")

    assert take_all(run) == [0, 2, 3]
    run.ended(2, None)
    assert take_all(run) == []
    run.ended(0, None)
    assert take_all(run) == [1]
    run.ended(1, None)
    assert take_all(run) == [4]


def test_what_waits_for_a_key_is_held_when_that_fails_and_so_is_what_follows() -> None:
    run = run_of("aaba" + "a" * MOST_WAITING_FOR_A_KEY + "a")
    assert take_all(run) == [0, 2]
    run.ended(0, FAILURE)
    assert take_all(run) == []
    run.ended(2, None)

    assert run.is_over
    assert run.held == [1, 3, *range(4, 5 + MOST_WAITING_FOR_A_KEY)]
    assert run.reached == 5 + MOST_WAITING_FOR_A_KEY


def test_records_of_a_key_do_not_wait_for_each_other_without_that_order() -> None:
    assert take_all(run_of("aaa", by_key=False)) == [0, 1, 2]


def test_a_key_that_is_far_behind_holds_up_the_others_so_that_what_waits_is_bounded() -> None:
    run = run_of("a" * (MOST_WAITING_FOR_A_KEY + 2) + "b")
    assert take_all(run) == [0]
    assert run.reached == 1 + MOST_WAITING_FOR_A_KEY
    run.ended(0, None)

    assert take_all(run) == [1, MOST_WAITING_FOR_A_KEY + 2]


def test_when_the_time_is_over_nothing_begins_but_what_waits_for_its_key() -> None:
    run = run_of("aab", concurrency=1, until=10.0, waits_until=11.0)
    assert run.take(0.0) == 0
    run_two = run_of("aab", until=10.0, waits_until=11.0)
    assert take_all(run_two, 9.0) == [0, 2]
    run.ended(0, None)
    assert run.take(10.0) is None
    assert (run.is_over, run.reached) == (True, 1)

    run_two.ended(0, None)
    assert take_all(run_two, 10.5) == [1]


def test_what_still_waits_for_its_key_after_that_is_held() -> None:
    run = run_of("aaab", until=10.0, waits_until=11.0)
    take_all(run)
    run.look_at_time(10.9)
    assert run.held == []
    run.look_at_time(11.0)
    assert run.held == [1, 2]
    run.ended(0, None)
    run.ended(3, None)

    assert take_all(run, 11.0) == []
    assert (run.is_over, run.reached) == (True, 4)


def test_the_first_record_begins_whatever_the_time() -> None:
    run = run_of("--", until=0.0, waits_until=0.0)

    assert (run.take(5.0), run.take(5.0)) == (0, None)


def test_nothing_begins_after_a_stop_not_even_the_first() -> None:
    run = run_of("--")
    run.stop()

    assert (run.take(0.0), run.is_over, run.reached) == (None, True, 0)


def test_no_more_begin_than_may_be_unfinished() -> None:
    run = run_of("-----", max_unfinished=2)
    assert take_all(run) == [0, 1]
    run.ended(0, FAILURE)
    assert take_all(run) == []
    run.ended(1, None)
    assert take_all(run) == [2]
    run.ended(2, FAILURE)
    assert take_all(run) == []

    assert (run.is_over, run.reached) == (True, 3)


def test_what_is_held_or_given_up_counts_as_unfinished() -> None:
    verdicts = [Verdict.UNFINISHED, Verdict.PASS, Verdict.DELIVER, Verdict.DELIVER, Verdict.DELIVER]
    run = run_of("--aa-", verdicts=verdicts, max_unfinished=3)

    assert take_all(run) == [2]
    assert run.reached == 4


def test_after_a_failure_nothing_begins_where_the_whole_shard_waits() -> None:
    run = run_of("---", concurrency=1, stops_at_failure=True)
    assert take_all(run) == [0]
    run.ended(0, FAILURE)

    assert (run.take(0.0), run.reached, run.is_over) == (None, 1, True)


def test_a_probe_delivers_one_record() -> None:
    run = run_of("---", verdicts=[Verdict.UNFINISHED, Verdict.DELIVER, Verdict.DELIVER], max_deliveries=1)
    assert take_all(run) == [1]
    run.ended(1, None)

    assert (take_all(run), run.reached, run.is_over) == ([], 2, True)


def test_an_outcome_of_what_is_not_under_way_changes_nothing() -> None:
    run = run_of("--")
    take_all(run)

    assert run.ended(0, None)
    assert not run.ended(0, FAILURE)
    assert run.failures == {}


def test_the_oldest_deliveries_are_overdue_first() -> None:
    run = run_of("---")
    for now in (1.0, 2.0, 3.0):
        run.take(now)
    run.ended(0, None)

    assert run.overdue(3.0) == [1]
    assert run.overdue(1.0) == []


def test_every_record_has_a_mark() -> None:
    marks = bytearray(3)
    run = RecordSchedule(3, RunRules(concurrency=2), SliceNotes(None, 0), marks)
    take_all(run)
    run.ended(0, FAILURE)

    assert list(marks) == [ENDED, UNDER_WAY, NOT_BEGUN]


@given(
    keys=st.text("abc-", max_size=60),
    verdicts=st.lists(
        st.sampled_from([*Verdict, Verdict.DELIVER, Verdict.DELIVER]), min_size=60, max_size=60
    ),
    concurrency=st.integers(1, 5),
    by_key=st.booleans(),
    max_unfinished=st.none() | st.integers(1, 10),
    until=st.sampled_from([5.0, 20.0, 1e9]),
    steps=st.data(),
)
def test_whatever_the_order_of_ends_each_record_ends_once_or_is_held_and_keys_keep_their_order(
    *,
    keys: str,
    verdicts: list[Verdict],
    concurrency: int,
    by_key: bool,
    max_unfinished: int | None,
    until: float,
    steps: st.DataObject,
) -> None:
    run = run_of(
        keys,
        verdicts=verdicts,
        by_key=by_key,
        concurrency=concurrency,
        max_unfinished=max_unfinished,
        until=until,
        waits_until=until + 5,
    )
    now, begun, acked = 0.0, [], []
    running_keys: set[str] = set()
    failed_keys: set[str] = set()
    while True:
        now += 1
        for at in take_all(run, now):
            key = keys[at]
            assert verdicts[at] is Verdict.DELIVER
            if by_key and key != "-":
                assert key not in running_keys | failed_keys
                running_keys.add(key)
            begun.append(at)
        assert len(run.under_way) <= concurrency
        if not run.under_way:
            break
        at = steps.draw(st.sampled_from(list(run.under_way)))
        failure = FAILURE if steps.draw(st.booleans()) else None
        assert run.ended(at, failure)
        running_keys.discard(keys[at])
        if failure is None:
            acked.append(at)
        elif by_key:
            failed_keys.add(keys[at])

    assert run.is_over
    passed = [at for at in range(run.reached) if verdicts[at] is not Verdict.DELIVER]
    assert sorted([*acked, *run.failures, *run.held, *passed]) == list(range(run.reached))
    assert sorted([*acked, *run.failures]) == sorted(begun)
    of_key = defaultdict(list)
    for at in begun:
        of_key[keys[at]].append(at)
    if by_key:
        assert all(ats == sorted(ats) for key, ats in of_key.items() if key != "-")
    if max_unfinished is not None:
        unfinished = sum(verdicts[at] is Verdict.UNFINISHED for at in passed)
        assert len(run.failures) + len(run.held) + unfinished <= max_unfinished
