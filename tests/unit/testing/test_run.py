"""``run``: a handler's whole story, told by the real rules on a clock that nobody waits for."""

from pathlib import Path
from typing import Any, ClassVar

import pytest

from kinesis_spout import Record, Reject, RetryLater
from kinesis_spout.dead_letters.sink_url import open_sink
from kinesis_spout.kinesis.aggregated_record import UserRecord
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.testing import Ending, InMemoryStream, InMemoryZooKeeper, ManualClock, Outcomes, run
from tests.support import threads

FIRST = "shardId-000000000000"


def bill(record: Record) -> None:
    amount = int(record.data)
    if amount < 0:
        raise Reject("negative amount")


def payloads(outcomes: Outcomes) -> list[str]:
    """What was delivered, call by call."""
    return [delivery.record.data.decode() for delivery in outcomes.deliveries]


def handle_nothing(_: object) -> None:
    raise ValueError("broken")


class TestWhatBecomesOfARecord:
    def test_a_record_whose_handler_returns_is_acked(self) -> None:
        (outcome,) = run(bill, [b"5"])
        assert outcome.ending is Ending.ACKED
        assert outcome.acked
        assert not outcome.dead_lettered
        assert (outcome.record.data, outcome.attempts, outcome.retries, outcome.error) == (b"5", 1, 0, None)

    def test_a_rejected_record_is_dead_lettered_at_once(self) -> None:
        (outcome,) = run(bill, ["-5"], retry_limit=3)
        assert outcome.dead_lettered
        assert (outcome.attempts, outcome.error) == (1, "negative amount")

    @pytest.mark.parametrize("error", [ValueError("broken"), SystemExit("broken"), GeneratorExit("broken")])
    def test_whatever_a_handler_raises_is_retried_until_the_limit(self, error: BaseException) -> None:
        def handler(_: Record) -> None:
            raise error

        (outcome,) = run(handler, [b"x"], retry_limit=3)
        assert outcome.dead_lettered
        assert (outcome.attempts, outcome.retries) == (4, 3)
        assert outcome.error == f"{type(error).__name__}: broken"

    def test_retries_come_after_their_back_off_and_nobody_waits_for_them(self) -> None:
        (outcome,) = run(
            handle_nothing,
            [b"x"],
            retry_limit=4,
            retry_backoff_seconds=10.0,
            retry_backoff_multiplier=3.0,
            retry_backoff_cap_seconds=50.0,
        )
        assert [each.at_seconds for each in outcome.deliveries] == [0, 10, 40, 90, 140]
        assert [each.retry_in_seconds for each in outcome.deliveries] == [10, 30, 50, 50, None]

    def test_a_handler_that_asks_for_a_later_retry_gets_it_then(self) -> None:
        def handler(record: Record) -> None:
            if record.attempt == 1:
                raise RetryLater(3600, "the bank is closed")

        (outcome,) = run(handler, [b"x"])
        assert outcome.acked
        assert outcome.error == "RetryLater: the bank is closed"
        assert [each.at_seconds for each in outcome.deliveries] == [0, 3600]

    def test_a_handler_that_takes_longer_than_the_time_out_has_failed_although_it_returned(self) -> None:
        clock = ManualClock()

        def handler(record: Record) -> None:
            clock.advance(31 if record.attempt == 1 else 29)

        (outcome,) = run(handler, [b"x"], clock=clock, message_timeout_seconds=30)
        first, second = outcome.deliveries
        assert (first.timed_out, first.error) == (True, "timed out after 30 s")
        assert (second.timed_out, second.error) == (False, None)
        assert outcome.acked

    def test_an_error_that_came_after_the_time_out_is_not_heard_any_more(self) -> None:
        clock = ManualClock()

        def handler(_: Record) -> None:
            clock.advance(31)
            raise Reject("too late")

        (outcome,) = run(handler, [b"x"], clock=clock, message_timeout_seconds=30, retry_limit=1)
        assert (outcome.attempts, outcome.error) == (2, "timed out after 30 s")

    def test_a_scheme_that_raises_fails_the_record(self) -> None:
        seen: list[Any] = []
        good, broken = run(seen.append, [b'{"a": 1}', b"{"], scheme="json", retry_limit=1)
        assert good.acked
        assert (broken.ending, broken.attempts) == (Ending.DEAD_LETTERED, 2)
        assert seen == [{"a": 1}]

    def test_a_handler_may_change_its_record_and_the_next_attempt_has_what_was_read(self) -> None:
        seen: list[bytes] = []

        def handler(record: Record) -> None:
            seen.append(record.data)
            record.data = b"spoilt"
            raise ValueError

        (outcome,) = run(handler, [b"whole"], retry_limit=1)
        assert seen == [b"whole", b"whole"]
        assert outcome.record.data == b"whole"
        assert [each.record.attempt for each in outcome.deliveries] == [1, 2]

    def test_ctrl_c_in_a_handler_reaches_the_developer(self) -> None:
        def handler(_: Record) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(handler, [b"x"])


class TestTheOrderOfDelivery:
    def test_others_go_on_while_a_failed_record_waits(self) -> None:
        outcomes = run(fail_once("a1"), keyed("a1", "a2", "b1"))
        assert payloads(outcomes) == ["a1", "a2", "b1", "a1"]
        assert [str(outcome.record.data.decode()) for outcome in outcomes] == ["a1", "a2", "b1"]

    def test_the_shard_waits_if_the_order_says_so(self) -> None:
        outcomes = run(fail_once("a1"), keyed("a1", "a2", "b1"), order="shard")
        assert payloads(outcomes) == ["a1", "a1", "a2", "b1"]

    def test_a_retry_without_delay_stands_among_the_deliveries_where_it_was_made(self) -> None:
        outcomes = run(fail_once("a1"), keyed("a1", "a2"), order="shard", retry_backoff_seconds=0.0)
        assert payloads(outcomes) == ["a1", "a1", "a2"]
        assert [each.number for each in outcomes.deliveries] == [1, 2, 3]


class TestAStream:
    def test_the_parent_of_a_split_is_finished_before_its_children_begin(self) -> None:
        stream = InMemoryStream(clock=ManualClock())
        put(stream, "before 0", "before 1")
        stream.split(FIRST)
        put(stream, *(f"after {number}" for number in range(8)))
        outcomes = run(fail_once("before 0"), stream)
        told = payloads(outcomes)
        assert told[:3] == ["before 0", "before 1", "before 0"]
        assert sorted(told[3:]) == [f"after {number}" for number in range(8)]
        assert len({outcome.record.shard_id for outcome in outcomes}) == 3

    def test_what_the_handler_puts_on_the_stream_is_handled_too(self) -> None:
        stream = InMemoryStream(clock=ManualClock())
        put(stream, "3")

        def handler(record: Record) -> None:
            left = int(record.data) - 1
            if left:
                put(stream, str(left))

        assert payloads(run(handler, stream)) == ["3", "2", "1"]

    def test_a_stream_on_another_clock_is_refused(self) -> None:
        with pytest.raises(ValueError, match="leave clock out"):
            run(bill, InMemoryStream())
        with pytest.raises(ValueError, match="leave clock out"):
            run(bill, InMemoryStream(clock=ManualClock()), clock=ManualClock())

    def test_one_payload_alone_is_refused_instead_of_being_taken_apart(self) -> None:
        with pytest.raises(TypeError, match="put it into a list"):
            run(bill, "12")

    def test_a_record_keeps_its_data_and_its_partition_key(self) -> None:
        given = Record(data=b"5", sequence_number="1", partition_key="customer")
        (outcome,) = run(bill, [given])
        assert (outcome.record.data, outcome.record.partition_key) == (b"5", "customer")

    def test_an_empty_stream_has_no_outcomes(self) -> None:
        assert run(bill, []) == ()

    def test_latest_hands_out_nothing_that_was_there_before(self) -> None:
        clock = ManualClock()
        stream = InMemoryStream(clock=clock)
        put(stream, "5")
        clock.advance(1)
        assert run(bill, stream, initial_position="latest") == ()


class TestTheClock:
    def test_a_run_of_0_seconds_does_what_can_be_done_now_and_says_what_waits(self) -> None:
        clock = ManualClock()
        outcomes = run(handle_nothing, [b"x", b"y"], clock=clock, for_seconds=0)
        assert clock.monotonic() == 0
        assert [outcome.error for outcome in outcomes.waiting] == ["ValueError: broken"] * 2

    def test_a_record_that_is_retried_for_ever_does_not_make_the_run_endless(self) -> None:
        outcomes = run(handle_nothing, [b"x"], retry_limit=None, for_seconds=600)
        (outcome,) = outcomes.waiting
        assert outcome.retries > 9

    def test_no_time_passes_where_nothing_fails(self) -> None:
        clock = ManualClock()
        run(bill, [b"1", b"2"], clock=clock)
        assert clock.monotonic() == 0

    def test_two_runs_tell_the_same_story(self) -> None:
        def story() -> tuple[Outcomes, float]:
            clock = ManualClock()
            stream = InMemoryStream(shards=3, clock=clock)
            put(stream, *map(str, range(30)))
            stream.split(FIRST)
            put(stream, *map(str, range(30, 60)))
            return run(fail_once("1", "7", "44"), stream), clock.monotonic()

        assert story() == story()

    def test_no_thread_is_started(self, monkeypatch: pytest.MonkeyPatch) -> None:
        threads.forbid_starts(monkeypatch)
        outcomes = run(bill, [b"5", b"-5"])
        assert (len(outcomes.acked), len(outcomes.dead_lettered)) == (1, 1)


class TestARestart:
    def test_a_second_run_with_the_same_progress_goes_on_where_the_first_ended(self) -> None:
        stream, progress = InMemoryStream(clock=ManualClock()), InMemoryZooKeeper()
        put(stream, "1", "2")
        assert len(run(bill, stream, progress=progress)) == 2
        put(stream, "3")
        assert payloads(run(bill, stream, progress=progress)) == ["3"]

    def test_the_attempts_of_earlier_runs_count(self) -> None:
        stream, progress = InMemoryStream(clock=ManualClock()), InMemoryZooKeeper()
        put(stream, "x")
        run(handle_nothing, stream, progress=progress, for_seconds=0)
        (outcome,) = run(handle_nothing, stream, progress=progress, retry_limit=1)
        assert outcome.dead_lettered
        assert (outcome.attempts, len(outcome.deliveries)) == (2, 1)


class TestSettings:
    def test_dead_letters_go_where_the_setting_says(self, tmp_path: Path) -> None:
        run(bill, [b"-5"], dead_letters=str(tmp_path / "dead"), app="billing")
        (letter,) = open_sink(str(tmp_path / "dead")).read()
        assert (letter.data, letter.error, letter.application) == (b"-5", "negative amount", "billing")

    def test_a_setting_that_is_none_is_refused(self) -> None:
        with pytest.raises(InvalidConfig, match="did you mean retry_limit"):
            run(bill, [b"5"], retry_limti=3)  # type: ignore[call-arg]

    def test_the_environment_does_not_reach_into_a_test(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KINESIS_SPOUT_RETRY_LIMIT", "0")
        (outcome,) = run(handle_nothing, [b"x"])
        assert outcome.retries == 3

    def test_outcomes_print_as_a_story(self) -> None:
        assert repr(run(bill, [b"5", b"-5"])) == (
            "Outcomes:\nb'5': acked at attempt 1\nb'-5': dead-lettered at attempt 1 (negative amount)"
        )


class fail_once:  # noqa: N801 - reads as a verb
    """A handler that fails some payloads the first time."""

    def __init__(self, *payloads: str) -> None:
        self._payloads = payloads

    def __call__(self, record: Record) -> None:
        if record.data.decode() in self._payloads and record.attempt == 1:
            raise ValueError("the first time")


def keyed(*payloads: str) -> list[Record]:
    """Records whose partition key is their first letter."""
    return [
        Record(data=payload.encode(), sequence_number="0", partition_key=payload[0]) for payload in payloads
    ]


def put(stream: InMemoryStream, *payloads: str) -> None:
    for payload in payloads:
        stream.put(payload.encode(), payload)


class TestAHandlerThatIsBroken:
    RECORDS: ClassVar = [f"{number}" for number in range(300)]

    def test_by_default_each_failure_counts(self) -> None:
        assert len(run(handle_nothing, self.RECORDS, retry_limit=0).dead_lettered) == 300

    def test_where_records_are_spared_none_is_given_up_and_all_come_after_the_mend(self) -> None:
        clock = ManualClock()

        def handler(_: Record) -> None:
            if clock.monotonic() < 100.0:
                raise ValueError("no database")

        outcomes = run(handler, self.RECORDS, clock=clock, max_spared_seconds=600)
        assert len(outcomes.acked) == 300
        assert sum(each.at_seconds < 100 for each in outcomes.deliveries) < 1_000


class TestAggregatedRecords:
    def test_one_user_record_is_retried_and_the_others_are_not(self) -> None:
        stream = InMemoryStream(clock=ManualClock())
        stream.put_aggregated(UserRecord("key", payload) for payload in (b"1", b"x", b"3"))
        stream.put(b"4", "key")

        outcomes = run(bill, stream, retry_limit=1)

        assert payloads(outcomes) == ["1", "x", "3", "4", "x"]
        (given_up,) = outcomes.dead_lettered
        assert (given_up.record.data, given_up.record.sub_sequence_number) == (b"x", 1)

    def test_a_restart_goes_on_in_the_middle_of_an_aggregate(self) -> None:
        stream, progress = InMemoryStream(clock=ManualClock()), InMemoryZooKeeper()
        stream.put_aggregated(UserRecord("key", b"%d" % number) for number in range(5))
        delivered: list[bytes] = []

        def dies_at_three(record: Record) -> None:
            delivered.append(record.data)
            if record.data == b"3" and len(delivered) == 4:
                raise ValueError("not now")

        first = run(dies_at_three, stream, progress=progress, retry_backoff_seconds=60.0, for_seconds=1.0)
        second = run(dies_at_three, stream, progress=progress, retry_backoff_seconds=60.0)

        assert [outcome.record.data for outcome in first.waiting] == [b"3"]
        assert [(outcome.record.data, outcome.attempts) for outcome in second] == [(b"3", 2)]
        assert delivered == [b"0", b"1", b"2", b"3", b"4", b"3"]

    def test_a_dead_letter_of_a_user_record_names_its_place_and_holds_it_alone(self, tmp_path: Path) -> None:
        stream = InMemoryStream(clock=ManualClock())
        records = stream.put_aggregated(
            UserRecord(key, payload, hash_key)
            for key, payload, hash_key in (("a", b"1", None), ("b", b"x", "7"))
        )

        run(handle_nothing, stream, retry_limit=0, dead_letters=f"file://{tmp_path}")

        letters = list(open_sink(f"file://{tmp_path}").read())
        assert [letter.message_id for letter in letters] == [record.message_id for record in records]
        assert [(letter.partition_key, letter.data) for letter in letters] == [("a", b"1"), ("b", b"x")]
        assert [letter.explicit_hash_key for letter in letters] == [None, "7"]
