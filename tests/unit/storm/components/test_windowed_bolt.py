"""Windowed bolts: which windows are executed, when, and what becomes of them when something fails."""

import pickle
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kinesis_spout.model.errors import InvalidConfig, StateUnreadable
from kinesis_spout.storm import Count, Seconds, TopologyBuilder, Tuple, Window
from kinesis_spout.storm.components.open_windows import OpenWindows, restored_windows
from kinesis_spout.storm.components.windowed_bolt import ticks_every
from kinesis_spout.storm.running import results
from kinesis_spout.storm.state.key_values import read_value
from tests.support.storm.windowed_topology import (
    FAILS,
    RAISES,
    After,
    ByEventTime,
    Items,
    Numbers,
    Records,
    Started,
    executed,
    failed_numbers,
    numbers_of,
    windowed,
)

NONE: Any = None
SIXTY: Any = 60
GOLDEN = Path(__file__).parents[3] / "golden"


def items(key: str, *numbers: int) -> list[tuple[str, int, float]]:
    return [(key, number, 0.0) for number in numbers]


def at(time: float, number: int, key: str = "a") -> tuple[str, int, float]:
    return (key, number, time)


class TestByCount:
    def test_a_window_has_as_many_tuples_of_one_key_as_it_is_long(self) -> None:
        topology = Started(Numbers(Count(3)))

        result = topology.run(*items("a", 1, 2), *items("b", 3), *items("a", 4, 5), *items("b", 6))

        assert numbers_of(result) == {"a": [(1, 2, 4)]}
        assert len(result.acked) == 6

    def test_a_window_is_completed_over_micro_batches_and_restarts(self) -> None:
        topology = Started(Numbers(Count(3)))

        assert numbers_of(topology.run(*items("a", 1, 2))) == {}
        topology.restart()
        assert numbers_of(topology.run(*items("a", 3, 4))) == {"a": [(1, 2, 3)]}
        topology.restart()
        assert numbers_of(topology.run(*items("a", 5, 6, 7))) == {"a": [(4, 5, 6)]}

    def test_sliding_windows_share_tuples_and_the_first_one_is_whole(self) -> None:
        topology = Started(Numbers(Count(4), Count(2)))

        result = topology.run(*items("a", *range(9)))

        assert numbers_of(result) == {"a": [(0, 1, 2, 3), (2, 3, 4, 5), (4, 5, 6, 7)]}

    def test_a_key_without_an_open_window_takes_no_state(self) -> None:
        topology = Started(Numbers(Count(2)))

        topology.run(*items("a", 1, 2), *items("b", 3))

        assert set(topology.kept) == {"b"}

    def test_a_window_tells_the_times_of_its_first_and_last_tuple(self) -> None:
        topology = Started(Numbers(Count(2)))

        topology.run(*items("a", 1))
        topology.clock.advance(2.5)

        assert executed(topology.run(*items("a", 2))) == {"a": [((1, 2), 1000.0, 1002.5)]}

    def test_a_tuple_whose_window_raises_is_not_in_it_and_the_next_one_completes_it(self) -> None:
        topology = Started(Numbers(Count(2)))
        topology.run(*items("a", 1))
        RAISES.add(2)

        result = topology.run(*items("a", 2, 3, 4))

        assert failed_numbers(result) == [2]
        assert result.reasons == ["windows: raised"]
        assert numbers_of(result) == {"a": [(1, 3)]}
        RAISES.clear()
        assert numbers_of(topology.run(*items("a", 2))) == {"a": [(4, 2)]}

    @pytest.mark.parametrize("is_far", [False, True])
    @pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
    def test_a_result_that_fails_further_on_is_emitted_again_and_no_record_fails(
        self, guarantee: str, *, is_far: bool
    ) -> None:
        topology = Started(Numbers(Count(2)), state_guarantee=guarantee, is_far=is_far)
        FAILS.add(2)

        result = topology.run(*items("a", 1, 2, 3))

        assert result.failed == []
        assert topology.failed == [(1, 2)]
        assert set(topology.kept) == {"a"}, "what waits is no value of a key"
        assert numbers_of(topology.run(*items("a", 4))) == {"a": [(3, 4)]}, (
            "the key goes on, and it is too early"
        )
        topology.restart()
        FAILS.clear()
        topology.clock.advance(1)

        again = topology.run()

        assert numbers_of(again) == {"a": [(1, 2)]}
        assert again.counts["windows"].last_error.endswith(
            "1 tuples that it emitted for windows or on ticks failed in later bolts, up to 1 times: they are "
            "emitted again"
        )
        assert topology.failed == []
        topology.clock.advance(600)
        assert numbers_of(topology.run()) == {}

    def test_where_too_many_results_have_failed_no_window_is_executed_until_they_are_done(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(results, "MOST_WAITING", 2)
        topology = Started(Numbers(Count(1)))
        FAILS.update((1, 2))
        topology.run(*items("a", 1))

        result = topology.run(*items("a", 2), *items("a", 3))

        assert failed_numbers(result) == [2, 3]
        assert "expected fewer than 1 tuples of this task's windows or ticks" in result.reasons[0]
        FAILS.clear()
        topology.clock.advance(1)
        topology.run()
        assert numbers_of(topology.run(*items("a", 2), *items("a", 3))) == {"a": [(2,), (3,)]}

    def test_a_key_does_not_get_past_a_window_that_can_never_be_executed_and_others_do(self) -> None:
        topology = Started(Numbers(Count(2)))
        RAISES.add(1)

        result = topology.run(*items("a", 1, 2, 3), *items("b", 4, 5))

        assert failed_numbers(result) == [2, 3]
        assert numbers_of(result) == {"b": [(4, 5)]}

    def test_a_window_has_nothing_of_a_record_of_which_another_tuple_failed(self) -> None:
        topology = Started(Numbers(Count(2)))
        topology.run(*items("b", 1))
        RAISES.add(3)

        result = topology.local.run([(items("a", 2) + items("b", 3),), (items("a", 4, 5),)])

        assert failed_numbers(result) == [2, 3]
        assert numbers_of(result) == {"a": [(4, 5)]}


class TestByTime:
    def test_a_tuple_closes_the_windows_of_its_key_that_end_before_it(self) -> None:
        topology = Started(ByEventTime(Seconds(10)))

        result = topology.run(at(11, 1), at(19.999999, 2), at(12, 3, "b"), at(20, 4), at(55, 5))

        assert executed(result) == {"a": [((1, 2), 10.0, 20.0), ((4,), 20.0, 30.0)]}
        assert len(result.acked) == 5

    def test_the_time_of_a_tuple_is_the_wall_clock_unless_overridden(self) -> None:
        topology = Started(Numbers(Seconds(10)))

        topology.run(*items("a", 1))
        topology.clock.advance(9.5)
        topology.run(*items("a", 2))
        topology.restart()
        topology.clock.advance(0.5)

        assert executed(topology.run(*items("a", 3))) == {"a": [((1, 2), 1000.0, 1010.0)]}

    def test_sliding_windows_begin_at_multiples_of_the_slide(self) -> None:
        topology = Started(ByEventTime(Seconds(10), Seconds(5)))

        result = topology.run(at(12, 1), at(16, 2), at(100, 3))

        assert executed(result) == {"a": [((1,), 5.0, 15.0), ((1, 2), 10.0, 20.0), ((2,), 15.0, 25.0)]}

    def test_a_slide_need_not_divide_the_length(self) -> None:
        topology = Started(ByEventTime(Seconds(0.7), Seconds(0.3)))

        result = topology.run(at(0.6, 1), at(100, 2))

        assert executed(result) == {"a": [((1,), 0.0, 0.7), ((1,), 0.3, 1.0), ((1,), 0.6, 1.3)]}

    def test_times_before_the_epoch_have_windows_too(self) -> None:
        topology = Started(ByEventTime(Seconds(10)))

        assert executed(topology.run(at(-1, 1), at(0, 2))) == {"a": [((1,), -10.0, 0.0)]}

    def test_tuples_may_come_in_disorder_for_as_long_as_the_lateness(self) -> None:
        topology = Started(ByEventTime(Seconds(10), lateness_seconds=5))

        result = topology.run(at(12, 1), at(24.9, 2), at(11, 3), at(25, 4), at(20, 5))

        assert executed(result) == {"a": [((1, 3), 10.0, 20.0)]}
        assert result.failed == []

    def test_a_late_tuple_does_not_make_the_micro_batch_run_twice(self) -> None:
        topology = Started(ByEventTime(Seconds(10)))
        result = topology.run(("a", 1, 1_003), ("a", 2, 1_013), ("a", 3, 1_004), ("a", 4, 1_014))
        assert len(result.failed) == 1
        assert result.counts["windows"].executed == 4

    def test_the_record_of_a_late_tuple_is_given_up(self) -> None:
        topology = Started(ByEventTime(Seconds(10)))

        result = topology.run(at(12, 1), at(21, 2), at(13, 3))

        [(_, end)] = result.failed
        assert end.failure.rejected
        assert end.reason == (
            "windows: too late: its time is 13.000000, and the windows of that time were executed before"
        )
        assert numbers_of(result) == {"a": [(1,)]}

    def test_a_tuple_is_not_late_while_one_of_its_windows_is_open(self) -> None:
        topology = Started(ByEventTime(Seconds(10), Seconds(5)))

        result = topology.run(at(12, 1), at(16, 2), at(13, 3), at(100, 4))

        assert numbers_of(result) == {"a": [(1,), (1, 2, 3), (2,)]}

    def test_a_bolt_may_do_with_late_tuples_what_it_wants(self) -> None:
        class Lenient(ByEventTime):
            def late(self, tup: Tuple) -> None:
                self.emit([tup["key"], (tup["number"],), 0.0, 0.0])

        topology = Started(Lenient(Seconds(10)))

        result = topology.run(at(12, 1), at(21, 2), at(13, 3))

        assert numbers_of(result) == {"a": [(1,), (3,)]}
        assert len(result.acked) == 3

    def test_a_closing_tuple_that_fails_leaves_its_windows_open_to_the_tuples_before_it(self) -> None:
        topology = Started(ByEventTime(Seconds(10)))
        topology.run(at(11, 1))
        RAISES.add(1)

        assert failed_numbers(topology.run(at(25, 2))) == [2]
        assert failed_numbers(topology.run(at(12, 3))) == []
        RAISES.clear()
        assert numbers_of(topology.run(at(25, 2))) == {"a": [(1, 3)]}

    def test_a_record_that_is_retried_after_its_window_was_executed_is_late(self) -> None:
        topology = Started(ByEventTime(Seconds(10)))
        RAISES.add(1)
        assert failed_numbers(topology.run(at(11, 1), at(25, 2))) == [2]
        RAISES.clear()
        assert numbers_of(topology.run(at(35, 3))) == {"a": [(1,)]}

        result = topology.run(at(25, 2), at(45, 4))

        assert failed_numbers(result) == [2]
        assert numbers_of(result) == {"a": [(3,)]}

    @pytest.mark.parametrize("time", [float("nan"), float("inf"), None, "noon"])
    def test_a_time_that_is_none_fails_the_tuple(self, time: Any) -> None:
        topology = Started(ByEventTime(Seconds(10)))

        result = topology.run(at(time, 1), at(12, 2))

        assert failed_numbers(result) == [1]
        assert f"expected time_of to give seconds since the epoch, a finite number, got {time!r}" in str(
            result.reasons
        )


class TestOnTicks:
    def test_the_windows_of_all_keys_are_closed_that_have_ended(self) -> None:
        topology = Started(Numbers(Seconds(10), tick_seconds=0))
        topology.run(*items("a", 1), *items("b", 2))
        topology.clock.advance(10)

        result = topology.run(*items("c", 3))

        assert numbers_of(result) == {"a": [(1,)], "b": [(2,)]}

    def test_they_are_not_closed_between_ticks(self) -> None:
        topology = Started(Numbers(Seconds(10), tick_seconds=30))
        topology.run(*items("a", 1))
        topology.clock.advance(10)
        assert numbers_of(topology.run(*items("b", 2))) == {}
        topology.clock.advance(20)

        assert numbers_of(topology.run(*items("c", 3))) == {"a": [(1,)], "b": [(2,)]}

    def test_a_key_that_still_gets_tuples_is_left_to_them_for_as_long_as_the_lateness(self) -> None:
        """So a backlog, whose times are all long past, is not late as a whole."""
        topology = Started(ByEventTime(Seconds(10), lateness_seconds=5, tick_seconds=0))

        topology.run(at(11, 1))
        topology.clock.advance(4)
        assert numbers_of(topology.run(at(12, 2))) == {}
        topology.clock.advance(5)
        assert numbers_of(topology.run()) == {"a": [(1, 2)]}

    @pytest.mark.parametrize("fail", [FAILS, RAISES])
    def test_one_that_fails_for_ever_is_tried_less_and_less_often_and_keeps_no_other_key_back(
        self, fail: set[int]
    ) -> None:
        topology = Started(Numbers(Seconds(10), tick_seconds=0))
        topology.run(*items("a", 1))
        fail.add(1)
        tried: list[float] = []
        for second in range(1_000):
            topology.clock.advance(1)
            result = topology.run(*items("b", second + 2))
            assert failed_numbers(result) == []
            if result.counts["windows"].errors:
                tried.append(topology.clock.monotonic())
        gaps = [later - earlier for earlier, later in pairwise(tried)]
        first = 1 if fail is FAILS else 0  # The first failure is reported when it is emitted again.
        assert gaps == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300][first : len(gaps) + first]

        fail.clear()
        topology.clock.advance(300)
        assert numbers_of(topology.run())["a"] == [(1,)]

    def test_windows_of_a_key_are_executed_in_their_order_although_one_raises(self) -> None:
        topology = Started(ByEventTime(Seconds(10), Seconds(5), lateness_seconds=100, tick_seconds=0))
        topology.run(at(1_001, 1), at(1_006, 2), at(1_011, 3))
        RAISES.add(3)
        topology.clock.advance(200)

        assert numbers_of(topology.run()) == {"a": [(1,), (1, 2)]}
        RAISES.clear()
        topology.clock.advance(1)
        assert numbers_of(topology.run()) == {"a": [(2, 3), (3,)]}

    def test_a_tick_is_in_every_run_of_a_micro_batch_that_is_run_again_for_its_state(self) -> None:
        """What it did in a run that does not count is undone with all else of that run."""
        topology = Started(ByEventTime(Seconds(10), tick_seconds=30))
        topology.run(at(1_001, 1))
        topology.clock.advance(30)

        result = topology.run(at(1_031, 2, "b"), at(float("nan"), 3, "b"))

        assert failed_numbers(result) == [3]
        assert numbers_of(result) == {"a": [(1,)]}
        assert numbers_of(topology.run(at(1_031, 4))) == {}

    def test_a_window_that_raises_is_reported_and_stays_for_the_next_tick(self) -> None:
        topology = Started(Numbers(Seconds(10), tick_seconds=0))
        topology.run(*items("a", 1), *items("b", 2))
        topology.clock.advance(10)
        RAISES.add(1)

        result = topology.run()
        assert numbers_of(result) == {"b": [(2,)]}
        assert result.counts["windows"].errors == 1
        RAISES.clear()
        topology.clock.advance(1)
        assert numbers_of(topology.run()) == {"a": [(1,)]}

    def test_a_key_that_gets_nothing_for_long_takes_no_state(self) -> None:
        topology = Started(Numbers(Seconds(10), tick_seconds=0))
        topology.run(*items("a", 1))
        topology.clock.advance(20)

        topology.run()
        assert set(topology.kept) == {"a"}
        topology.run()
        assert topology.kept == {}

    def test_a_tuple_is_late_for_a_window_that_a_tick_has_closed(self) -> None:
        topology = Started(ByEventTime(Seconds(10), tick_seconds=0))
        topology.clock.advance(5)
        topology.run(at(1001, 1))
        topology.clock.advance(5)
        assert numbers_of(topology.run()) == {"a": [(1,)]}
        topology.run()

        assert failed_numbers(topology.run(at(1002, 2), at(1003, 3, "b"))) == [2]


class TestByDefault:
    """Windows by time are closed while their keys get nothing, and while nothing comes at all."""

    def test_the_windows_of_idle_keys_are_closed(self) -> None:
        topology = Started(Numbers(Seconds(10)))
        topology.run(*items("a", 1), *items("b", 2))
        topology.clock.advance(9.9)
        assert numbers_of(topology.run()) == {}
        topology.clock.advance(1)

        assert numbers_of(topology.run()) == {"a": [(1,)], "b": [(2,)]}

    @pytest.mark.parametrize(
        ("length", "slide", "every"),
        [
            (60, None, 6.0),
            (60, 20, 2.0),
            (5, None, 1.0),
            (0.1, None, 1.0),
            (3_600, None, 10.0),
            (3_600, 60, 6.0),
        ],
    )
    def test_they_tick_as_often_as_their_slide_makes_sense_of(
        self, length: float, slide: float | None, every: float
    ) -> None:
        bolt = Numbers(Seconds(length), None if slide is None else Seconds(slide))
        assert ticks_every(bolt) == pytest.approx(every)

    def test_what_is_set_is_taken_and_windows_by_count_need_no_ticks(self) -> None:
        assert ticks_every(Numbers(Seconds(60), tick_seconds=0)) == 0
        assert ticks_every(Numbers(Count(60))) is None
        assert ticks_every(After()) is None

    def test_without_end_they_are_left_to_the_next_tuple(self) -> None:
        topology = Started(Numbers(Seconds(10), tick_seconds=float("inf")))
        topology.run(*items("a", 1))
        topology.clock.advance(3_600)

        assert numbers_of(topology.run()) == {}
        assert numbers_of(topology.run(*items("a", 2))) == {"a": [(1,)]}

    def test_by_event_time_a_key_must_have_got_nothing_for_the_length_too(self) -> None:
        """So what needs a moment longer to the stream than other records is not late."""
        topology = Started(ByEventTime(Seconds(10), lateness_seconds=1))
        topology.clock.advance(8)
        topology.run(at(1_007, 1))
        topology.clock.advance(10)
        assert numbers_of(topology.run()) == {}
        assert failed_numbers(topology.run(at(1_009, 2))) == []
        topology.clock.advance(11)

        assert numbers_of(topology.run()) == {"a": [(1, 2)]}

    @pytest.mark.parametrize("tick_seconds", [None, 0])
    def test_by_event_time_nothing_is_closed_while_older_records_may_wait_on_the_stream(
        self, tick_seconds: float | None
    ) -> None:
        topology = Started(ByEventTime(Seconds(10), tick_seconds=tick_seconds))
        topology.run(at(1_001, 1))
        topology.falls_behind()
        topology.clock.advance(3_600)
        topology.run()
        assert failed_numbers(topology.run(at(1_002, 2))) == []
        topology.catches_up()
        topology.clock.advance(10)

        assert numbers_of(topology.run()) == {"a": [(1, 2)]}


class TestTheWallClockIsSet:
    """In processing time no tuple is late, and no window waits for a wall clock that was wrong for a moment."""

    @pytest.mark.parametrize("seconds", [0.15, 3_600.0])
    def test_it_is_set_back_at_the_end_of_a_window_and_no_tuple_is_late(self, seconds: float) -> None:
        topology = Started(Numbers(Seconds(10)))
        topology.clock.advance(9.9)
        topology.run(*items("a", *range(100)))
        topology.clock.advance(0.2)
        assert numbers_of(topology.run(*items("a", 100))) == {"a": [tuple(range(100))]}
        topology.clock.jump(-seconds)

        assert failed_numbers(topology.run(*items("a", *range(101, 201)))) == []
        topology.clock.advance(20)
        assert executed(topology.run(*items("a", 201))) == {"a": [(tuple(range(100, 201)), 1010.0, 1020.0)]}

    def test_it_is_an_hour_ahead_for_one_tuple_and_the_next_windows_close_in_their_time(self) -> None:
        topology = Started(Numbers(Seconds(60)))
        topology.run(*items("a", 0))
        topology.clock.jump(3_600)
        topology.run(*items("a", 1))
        topology.clock.jump(-3_600)

        found: list[tuple[int, ...]] = []
        for number in range(2, 62):
            topology.clock.advance(60)
            result = topology.run(*items("a", number))
            assert failed_numbers(result) == []
            found += numbers_of(result).get("a", [])
        assert found == [(0, 1), *((number,) for number in range(2, 61))]

    @pytest.mark.parametrize("back", [0.15, 3_600.0])
    def test_bolts_that_begin_anew_on_a_machine_that_is_behind_find_no_tuple_late(self, back: float) -> None:
        topology = Started(Numbers(Seconds(10)))
        topology.run(*items("a", 1))
        topology.clock.advance(10)
        assert numbers_of(topology.run(*items("a", 2))) == {"a": [(1,)]}
        topology.clock.jump(-back)
        topology.restart(Numbers(Seconds(10)))

        assert failed_numbers(topology.run(*items("a", 3))) == []
        topology.clock.advance(back + 10)
        assert numbers_of(topology.run(*items("a", 4))) == {"a": [(2, 3)]}


class TestKeys:
    def test_a_key_of_several_fields_is_a_tuple_of_their_values(self) -> None:
        local = windowed(Numbers(Count(1)), ["key", "time"]).local()

        result = local.run([([("a", 1, 5.0)],)])

        [[key, *_]] = result.emitted["windows"]["default"]
        assert key == ("a", 5.0)

    def test_a_key_that_is_a_tuple_itself_is_kept_apart_from_several_fields(self) -> None:
        topology = Started(Numbers(Count(2)))

        topology.run((("a", "b"), 1, 0.0))  # type: ignore[arg-type]
        result = topology.run((("a", "b"), 2, 0.0))  # type: ignore[arg-type]

        [[key, numbers, *_]] = result.emitted["windows"]["default"]
        assert (key, numbers) == ((("a", "b"),), (1, 2))

    def test_a_bolt_may_take_several_streams_each_with_the_key_in_another_field(self) -> None:
        class Rows(Numbers):
            def execute_window(self, key: Any, window: Window) -> None:
                self.emit([key, tuple(map(dict, window.tuples)), window.start, window.end])

        class Renamed(Items):
            def declare_output_fields(self) -> list[str]:
                return ["other", "number", "name"]

        builder = TopologyBuilder()
        builder.set_spout("records", Records())
        builder.set_bolt("items", Items()).shuffle_grouping("records")
        builder.set_bolt("renamed", Renamed()).shuffle_grouping("records")
        builder.set_bolt("windows", Rows(Count(2)), 3).fields_grouping("items", ["key"]).fields_grouping(
            "renamed", ["name"]
        )

        result = builder.build().run_local([([("a", 1, "a")],)])

        [[_, rows, _, _]] = result.emitted["windows"]["default"]
        assert sorted(rows, key=len, reverse=True) == [
            {"key": "a", "number": 1, "time": "a"},
            {"other": "a", "number": 1, "name": "a"},
        ]


class TestSettings:
    @pytest.mark.parametrize(
        ("make", "expected"),
        [
            (
                lambda: Numbers(NONE),
                "expected the length of its windows, as in length = Seconds(60), got None",
            ),
            (
                lambda: Numbers(SIXTY),
                "expected the length of its windows, as in length = Seconds(60), got 60",
            ),
            (lambda: Numbers(Count(2), Count(3)), "got Count(tuples=3)"),
            (lambda: Numbers(Count(2), Seconds(1)), "got Seconds(seconds=1)"),
            (
                lambda: Numbers(Seconds(1), lateness_seconds=-1),
                "expected lateness_seconds of 0 or more, got -1",
            ),
            (lambda: Numbers(Count(2), lateness_seconds=1), "with windows by time only, got Count(tuples=2)"),
            (lambda: Numbers(Count(2), tick_seconds=1), "with windows by time only, got Count(tuples=2)"),
        ],
    )
    def test_windows_that_cannot_be_are_refused_when_the_bolt_is_set(
        self, make: Callable[[], Numbers], expected: str
    ) -> None:
        with pytest.raises(InvalidConfig) as raised:
            TopologyBuilder().set_bolt("windows", make())

        assert str(raised.value).startswith("bolt 'windows': expected ")
        assert expected in str(raised.value)

    @pytest.mark.parametrize("tuples", [0, -1, 1.5, True])
    def test_a_count_is_a_whole_number_from_1(self, tuples: Any) -> None:
        with pytest.raises(InvalidConfig, match="expected Count of 1 tuple or more, got"):
            Count(tuples)

    @pytest.mark.parametrize("seconds", [0, -1, 1e-9, float("inf"), float("nan"), "60", True])
    def test_seconds_are_a_time_that_can_be_counted(self, seconds: Any) -> None:
        with pytest.raises(InvalidConfig, match="expected Seconds of a microsecond or more, got"):
            Seconds(seconds)


class TestAnotherLength:
    """A topology that is deployed again with windows of another length finds those of the one before open."""

    def test_of_many_tuples_that_wait_no_window_gets_more_than_it_is_long(self) -> None:
        topology = Started(Numbers(Count(10)))
        topology.run(*items("a", 1, 2, 3, 4, 5, 6, 7))

        topology.restart(Numbers(Count(3)))

        assert numbers_of(topology.run(*items("a", 8))) == {"a": [(1, 2, 3), (4, 5, 6)]}
        assert numbers_of(topology.run(*items("a", 9, 10))) == {"a": [(7, 8, 9)]}

    def test_tuples_that_wait_are_in_shorter_windows_also_where_these_ended_before(self) -> None:
        topology = Started(ByEventTime(Seconds(60)))
        topology.run(at(1, 1), at(12, 2), at(11, 3), at(45, 4))

        topology.restart(ByEventTime(Seconds(10)))

        assert numbers_of(topology.run(at(46, 5))) == {"a": [(1,), (2, 3)]}
        assert numbers_of(topology.run(at(50, 6))) == {"a": [(4, 5)]}

    def test_tuples_that_wait_are_in_longer_windows(self) -> None:
        topology = Started(ByEventTime(Seconds(10)))
        assert numbers_of(topology.run(at(1, 1), at(12, 2), at(25, 3), at(22, 4))) == {"a": [(1,), (2,)]}

        topology.restart(ByEventTime(Seconds(60)))

        assert numbers_of(topology.run(at(59, 5))) == {}
        assert numbers_of(topology.run(at(60, 6))) == {"a": [(3, 4, 5)]}

    def test_windows_by_count_become_windows_by_time_and_these_by_count(self) -> None:
        topology = Started(ByEventTime(Count(10)))
        topology.run(at(1, 1), at(12, 2))

        topology.restart(ByEventTime(Seconds(10)))
        assert numbers_of(topology.run(at(15, 3))) == {"a": [(1,)]}
        topology.restart(ByEventTime(Count(2)))
        assert numbers_of(topology.run(at(0, 4), at(0, 5))) == {"a": [(2, 3), (4, 5)]}

    def test_ticks_close_shorter_windows_of_tuples_that_wait(self) -> None:
        topology = Started(Numbers(Seconds(60), tick_seconds=1))
        topology.run(*items("a", 1))

        topology.restart(Numbers(Seconds(10), tick_seconds=1))
        topology.clock.advance(11)

        assert numbers_of(topology.run()) == {"a": [(1,)]}


class TestStoredForm:
    KEPT = OpenWindows(
        rows=[(12_000_000, ("key", "number"), ("a", 1))], mark=10_000_000, next_end=20_000_000, arrived=7
    )

    def test_open_windows_of_format_1_are_read(self) -> None:
        assert read_value("k", (GOLDEN / "open_windows_v1.pickle").read_bytes()) == self.KEPT

    def test_open_windows_are_stored_as_they_were(self) -> None:
        assert pickle.loads(pickle.dumps(self.KEPT)) == self.KEPT

    def test_those_that_ticks_have_tried_in_vain_are_stored_with_that(self) -> None:
        tried = replace(self.KEPT, tries=3, not_before=9)
        assert pickle.loads(pickle.dumps(tried)) == tried

    def test_windows_that_a_newer_version_stored_are_refused(self) -> None:
        with pytest.raises(StateUnreadable, match="expected windows of format 1 in the state, got format 2"):
            restored_windows(2, {})
