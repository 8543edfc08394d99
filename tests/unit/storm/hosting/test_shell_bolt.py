import json
import logging
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.storm import DEFAULT_STREAM, BasicBolt, ShellBolt, TopologyBuilder, Tuple
from kinesis_spout.storm.hosting.component_reports import MOST_LINES, MOST_METRICS
from kinesis_spout.storm.local import LocalResult
from tests.support.storm.hang_clock import LEAP_SECONDS, HangClock
from tests.support.storm.shell_topology import ENVIRONMENT, ROOT, Words, command, shell_bolt, topology, words
from tests.support.waiting import wait_until

LONG_SECONDS = 600.0


class Sink(BasicBolt):
    """Takes anything."""

    def process(self, tup: Tuple) -> None:
        """Nothing is done."""


def run(bolt: ShellBolt, *given: str, **options: Any) -> LocalResult:
    with topology(bolt, **options) as local:
        return local.run(words(*given))


def emitted(result: LocalResult, stream: str = DEFAULT_STREAM) -> list[list[Any]]:
    return [list(values) for values in result.emitted.get("shell", {}).get(stream, [])]


def test_a_component_emits_anchored_tuples_and_acks() -> None:
    result = run(shell_bolt("upper"), "a", "b")
    assert emitted(result) == [["A"], ["B"]]
    assert result.acked == words("a", "b")


def test_more_tuples_than_may_wait_at_the_component_go_through_in_order() -> None:
    given = [str(number) for number in range(1_000)]
    result = run(shell_bolt("upper", max_pending=7), *given)
    assert emitted(result) == [[word] for word in given]
    assert not result.failed


def test_the_process_lives_on_from_micro_batch_to_micro_batch() -> None:
    with topology(shell_bolt("counts", fields=("word", "seen", "pid"))) as local:
        first, second = (emitted(local.run(words("a", "b"))) for _ in range(2))
    assert [seen for _, seen, _ in first + second] == [1, 2, 3, 4]
    assert len({pid for _, _, pid in first + second}) == 1


def test_cleaning_up_ends_the_process() -> None:
    with topology(shell_bolt("counts", fields=("word", "seen", "pid"))) as local:
        ((_, _, pid),) = emitted(local.run(words("a")))
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_hand_shake_tells_what_storm_tells(tmp_path: Path) -> None:
    bolt = shell_bolt(
        "context",
        fields=("conf", "context", "folder", "colour"),
        environment={"COLOUR": "blue"},
        resources=tmp_path,
        tick_seconds=7,
    )
    not_for_json = {"object": object(), "bytes": b"", "number": float("nan")}
    options = {"conf": {"my.own": [1, "two"], **not_for_json}, "message_timeout_seconds": 20}
    ((conf, context, folder, colour),) = emitted(run(bolt, "a", **options))
    assert conf == {
        "topology.name": "words",
        "topology.debug": False,
        "topology.message.timeout.secs": 20,
        "topology.subprocess.timeout.secs": 20.0,
        "topology.shellbolt.max.pending": 100,
        "topology.tick.tuple.freq.secs": 7,
        "my.own": [1, "two"],
    }
    assert context["taskid"] == 2
    assert context["componentid"] == "shell"
    assert context["task->component"] == {"1": "words", "2": "shell"}
    assert context["source->stream->fields"] == {"words": {"default": ["word"]}}
    assert context["source->stream->grouping"] == {"words": {"default": {"type": "SHUFFLE"}}}
    assert context["stream->outputfields"]["aside"] == ["word"]
    assert folder == str(tmp_path.resolve())
    assert colour == "blue"


def test_the_hand_shake_names_groupings_as_storm_does() -> None:
    shell = shell_bolt("context", fields=("conf", "context", "folder", "colour"))
    builder = TopologyBuilder()
    builder.set_spout("words", Words())
    builder.set_bolt("shell", shell).fields_grouping("words", ["word"])
    builder.set_bolt("every", Sink()).all_grouping("shell")
    builder.set_bolt("one", Sink()).global_grouping("shell")
    builder.set_bolt("spread", Sink()).partial_key_grouping("shell", ["folder"])
    builder.set_bolt("near", Sink()).local_or_shuffle_grouping("shell")
    builder.set_bolt("chosen", Sink()).direct_grouping("shell", "aside")
    result = builder.build("words").run_local(words("a"))
    ((_, context, _, _),) = emitted(result)
    assert context["source->stream->grouping"] == {
        "words": {"default": {"type": "FIELDS", "fields": ["word"]}}
    }
    assert context["stream->target->grouping"] == {
        "default": {
            "every": {"type": "ALL"},
            "one": {"type": "FIELDS", "fields": []},
            "spread": {"type": "CUSTOM_SERIALIZED"},
            "near": {"type": "LOCAL_OR_SHUFFLE"},
        },
        "aside": {"chosen": {"type": "DIRECT"}},
    }


def test_a_stray_print_is_put_aside_and_shown_once(caplog: pytest.LogCaptureFixture) -> None:
    bolt = shell_bolt("prints")
    with caplog.at_level(logging.WARNING):
        result = run(bolt, "a", "b", "c")
    assert emitted(result) == [["A"], ["B"], ["C"]]
    (line,) = [record.getMessage() for record in caplog.records if "stray print" in record.getMessage()]
    assert "component 'shell', task 2" in line


@pytest.mark.usefixtures("hang_clock")
def test_a_component_that_only_prints_is_ended_with_what_it_printed_in_the_reason() -> None:
    result = run(shell_bolt("only_prints"), "a")
    assert "I do not speak multilang" in result.reasons[0]


@pytest.mark.parametrize(
    ("how", "words_of_the_end"),
    [("dies", ["exit code 3", "cannot stand poison"]), ("is_killed", ["SIGKILL"])],
)
def test_of_what_a_component_had_when_it_died_only_the_one_to_blame_fails_with_its_last_words(
    how: str, words_of_the_end: list[str]
) -> None:
    with topology(shell_bolt(how)) as local:
        result = local.run(words("a", "poison", "b"))
        again = local.run(words("b"))
    assert result.acked == words("a", "b")
    assert [values for values, _ in result.failed] == words("poison")
    assert all(word in reason for word in words_of_the_end for reason in result.reasons)
    assert again.acked == words("b")
    assert emitted(again) == [["B"]]


def numbered(count: int, how_often_poison: int) -> list[str]:
    """Give words of which every so-many-th is poison, and all are different."""
    return [f"{'poison' if number % how_often_poison == 0 else 'word'} {number}" for number in range(count)]


@pytest.mark.parametrize("how", ["dies_of_some", "dies_half_way_of_some"])
def test_no_tuple_but_those_that_kill_the_component_fails_whatever_is_at_it_then(how: str) -> None:
    given = numbered(240, 20)
    with topology(shell_bolt(how)) as local:
        result = local.run(words(*given))
        counts = result.counts["shell"]
    assert [values for values, _ in result.failed] == words(*given[::20])
    assert all("exit code 3" in end.reason and not end.failure.put_off for _, end in result.failed)
    done = [word for [word] in emitted(result) if word.startswith("word")]
    assert sorted(done) == sorted(set(done)), "each once, also those that were given again"
    assert len(done) == 228
    assert counts.metrics["shell.restarts"].total <= 2 * 12


def test_a_component_that_holds_its_tuples_back_fails_only_with_the_one_that_kills_it() -> None:
    # It dies when it has all six, or on the tick, so what it is given alone shows which it was.
    bolt = shell_bolt("dies_of_a_batch", tick_seconds=0.05)
    with topology(bolt) as local:
        result = local.run(words("a", "b", "poison", "c", "d"))
        again = local.run(words("e"))
    assert [values for values, _ in result.failed] == words("poison")
    assert again.acked == words("e")


def test_of_several_tuples_that_a_component_had_begun_when_it_died_none_is_to_blame_yet() -> None:
    with topology(shell_bolt("begins_two_and_dies")) as local:
        result = local.run(words("a", "poison", "b"))
        again = local.run(words("poison"))
    assert result.acked == words("b")
    assert [values for values, _ in result.failed] == words("a", "poison")
    # Put off, to come again alone: it was no attempt.
    assert all(end.failure.put_off and end.failure.killed_worker for _, end in result.failed)
    assert [end.failure.put_off for _, end in again.failed] == [False]


def test_what_there_is_no_time_for_after_a_death_is_put_off_and_is_no_attempt() -> None:
    given = numbered(400, 5)
    with topology(shell_bolt("dies_of_some"), message_timeout_seconds=1) as local:
        wait_until(lambda: local.run(words("a")).acked, "its process has begun")
        result = local.run(words(*given))
    put_off = [values[0] for values, end in result.failed if end.failure.put_off]
    failed = [values[0] for values, end in result.failed if not end.failure.put_off]
    assert put_off
    assert failed
    assert result.acked
    assert sum(not word.startswith("poison") for word in failed) <= 1, "the oldest when the time was over"
    assert result.counts["shell"].metrics["shell.put_off"].total == len(put_off)


def test_what_a_component_says_of_a_tuple_that_its_own_emit_has_failed_comes_too_late() -> None:
    # What comes too late of the last to fail comes before the acks of those behind it.
    given = numbered(130, 40)
    with topology(shell_bolt("emits_nowhere_first")) as local:
        result = local.run(words(*given))
    assert [values for values, _ in result.failed] == words(*given[::40])
    assert all("expected a stream that it declares" in reason for reason in result.reasons)
    counts = result.counts["shell"]
    assert "shell.restarts" not in counts.metrics
    assert counts.metrics["shell.late"].total >= 2 * 4


@pytest.mark.usefixtures("hang_clock")
def test_a_component_that_hangs_is_replaced_after_the_time_out() -> None:
    with topology(shell_bolt("hangs")) as local:
        result = local.run(words("a", "poison"))
        again = local.run(words("b"))
    assert result.acked == words("a")
    assert "said nothing" in result.reasons[0]
    assert again.acked == words("b")


def test_a_component_that_never_answers_heart_beats_lives_as_long_as_it_acks() -> None:
    # All of them take longer than the time-out, and each a small part of it.
    result = run(shell_bolt("never_hears", timeout_seconds=4.0), *map(str, range(30)))
    assert len(result.acked) == 30


def test_a_component_that_names_an_unknown_id_is_replaced_and_the_worker_lives_on() -> None:
    with topology(shell_bolt("names_an_unknown_id")) as local:
        result = local.run(words("a", "poison"))
        again = local.run(words("b"))
    assert "never given" in result.reasons[0]
    assert again.acked == words("b")


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("damages_an_emit", "may have been an emit"),
        ("prints_much_before_it_emits", "at most 67108864 bytes"),
        ("emits_what_is_no_tuple", "emit: Expected `array`"),
        ("acks_a_number", "never given"),
        ("acks_a_list", "never given"),
    ],
)
def test_a_tuple_is_not_done_when_what_was_said_of_it_cannot_be_read(how: str, why: str) -> None:
    with topology(shell_bolt(how)) as local:
        result = local.run(words("a", "poison", "b"))
        again = local.run(words("c"))
    assert result.acked == words("a", "b")
    assert [why in reason for reason in result.reasons] == [True]
    assert again.acked == words("c")


def test_json_that_is_no_message_is_put_aside_and_shown_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        result = run(shell_bolt("prints_json"), "a", "b")
    assert emitted(result) == [["A"], ["B"]]
    assert result.counts["shell"].metrics["shell.invalid_output"].count == 62
    shown = [record.getMessage() for record in caplog.records if "no message" in record.getMessage()]
    assert len(shown) == 2  # what names no command, and the array


def test_what_a_component_says_of_itself_is_bounded_and_costs_no_tuple(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        result = run(shell_bolt("chatters"), "a", "b")
    assert emitted(result) == [["A"], ["B"]]
    lines = [record.getMessage() for record in caplog.records if "line " in record.getMessage()]
    assert 100 < len(lines) <= MOST_LINES
    assert max(map(len, lines)) < 11_000
    counts = result.counts["shell"]
    assert len(counts.metrics) <= MOST_METRICS + 1
    assert counts.metrics["shell.left_out"].total > 2_000
    assert counts.errors == 2
    assert "is half a character" in counts.last_error
    text = json.dumps(counts.told(), ensure_ascii=False, allow_nan=False)
    assert len(text.encode()) < 200_000


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("closes_its_input", "closed its input"),
        ("closes_its_output", "its output has ended"),
        ("leaves_a_child_behind", "exit code 3"),
    ],
)
@pytest.mark.usefixtures("hang_clock")
def test_a_component_with_a_pipe_that_leads_nowhere_is_replaced(how: str, why: str) -> None:
    with topology(shell_bolt(how)) as local:
        result = local.run(words("a", "poison", "b"))
        again = local.run(words("c"))
    assert result.acked == words("a", "b")
    assert [why in reason for reason in result.reasons] == [True]
    assert again.acked == words("c")


@pytest.mark.parametrize("timeout_seconds", [LEAP_SECONDS + 1, LONG_SECONDS])
def test_a_component_that_hangs_is_replaced_though_its_tuples_time_out_before(
    timeout_seconds: float, hang_clock: HangClock
) -> None:
    hang_clock.leaps = 2  # over the time-out of the tuples, and then over what is left of the component's
    bolt = shell_bolt("hangs", timeout_seconds=timeout_seconds)
    with topology(bolt, message_timeout_seconds=LEAP_SECONDS - 1, clock=hang_clock.monotonic) as local:
        local.run(words("poison", "b"))
        again = local.run(words("c"))
    assert again.acked == words("c")


def test_a_component_that_never_starts_holds_a_micro_batch_up_for_one_time_out_only() -> None:
    began = time.monotonic()
    result = run(shell_bolt("dies_at_once"), *map(str, range(200)), message_timeout_seconds=1)
    assert time.monotonic() - began < 100, "each of them for a second would take 200 s"
    assert all("no such module" in reason for reason in result.reasons)


def test_an_anchor_that_was_acked_before_ends_the_component() -> None:
    result = run(shell_bolt("anchors_after_the_ack"), "a", "b")
    assert result.acked == words("a")
    assert "acked or failed before" in result.reasons[0]


def test_a_second_ack_is_counted_and_changes_nothing() -> None:
    bolt = shell_bolt("acks_twice")
    result = run(bolt, "a", "b")
    assert len(result.acked) == 2
    # The second ack of the last tuple may come when nobody waits for anything any more.
    assert result.counts["shell"].metrics["shell.answered_twice"].total >= 1


def test_a_component_can_fail_a_tuple_and_report_an_error(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        result = run(shell_bolt("fails"), "a", "poison")
    assert result.acked == words("a")
    assert result.counts["shell"].errors == 1
    assert "poison is no food" in caplog.text
    assert "poison is no food" in result.reasons[0]


def test_a_component_that_asks_is_told_the_tasks_of_its_tuples() -> None:
    result = run(shell_bolt("asks_for_tasks"), "a", "b")
    assert emitted(result) == [["a"], ["a went to []"], ["b"], ["b went to []"]]
    assert len(result.acked) == 2


def test_what_a_component_emits_right_behind_its_pid_counts_and_is_answered() -> None:
    result = run(shell_bolt("emits_early"), "a")
    assert emitted(result) == [["early"], ["A"]]
    assert result.acked == words("a")


def test_a_tuple_anchored_to_two_is_of_both_trees() -> None:
    result = run(shell_bolt("joins"), "a", "b")
    assert emitted(result) == [["b"]]
    assert len(result.acked) == 2


def test_a_direct_tuple_for_nobody_fails_what_it_is_anchored_to() -> None:
    result = run(shell_bolt("emits_aside"), "a")
    assert "emit_direct" in result.reasons[0]


def test_a_tuple_with_too_many_values_fails_its_anchor_alone() -> None:
    result = run(shell_bolt("emits_too_many_values"), "a", "poison", "b")
    assert result.acked == words("a", "b")
    assert "expected 1 values" in result.reasons[0]


def test_floods_on_standard_error_hold_nothing_up_and_only_the_end_is_kept() -> None:
    result = run(shell_bolt("floods"), "a", "poison")
    assert result.acked == words("a")
    assert "the last line" in result.reasons[0]
    assert len(result.reasons[0]) < 20_000


def test_log_lines_go_to_our_log_at_their_level(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        run(shell_bolt("logs"), "a")
    (record,) = [each for each in caplog.records if "seen a" in each.getMessage()]
    assert record.levelno == logging.WARNING
    assert "component 'shell', task 2 (pid " in record.getMessage()


def test_log_lines_are_seen_where_nobody_has_set_up_logging(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("kinesis_spout.storm.multilang.component")
    monkeypatch.setattr(logger, "level", logging.NOTSET)
    with monkeypatch.context() as bare:
        bare.setattr(logging.getLogger(), "handlers", [])
        run(shell_bolt("upper"), "a")
        assert logger.level == logging.INFO


@pytest.mark.usefixtures("hang_clock")
def test_a_batch_that_is_held_back_for_a_tick_may_be_larger_than_what_may_wait() -> None:
    given = [*(str(number) for number in range(49)), "last"]
    settings = {"timeout_seconds": LONG_SECONDS, "tick_seconds": LEAP_SECONDS - 1}
    bolt = shell_bolt("keeps", max_pending=10, fields=("held",), **settings)
    result = run(bolt, *given, message_timeout_seconds=LONG_SECONDS)
    assert len(result.acked) == 50
    assert max(held for (held,) in emitted(result)) > 10


def test_a_component_gets_a_tick_and_is_heard_although_there_are_no_tuples() -> None:
    with topology(shell_bolt("emits_on_ticks", tick_seconds=0)) as local:
        results = [local.run([]), local.run(words("a")), local.run([])]
    assert [emitted(result) for result in results] == [[["tick"]], [["A"], ["tick"]], [["tick"]]]
    assert [result.counts["shell"].errors for result in results] == [0, 0, 0]


def test_a_component_that_cannot_start_for_a_tick_is_reported_and_fails_no_tuple() -> None:
    result = run(shell_bolt("dies_at_once", tick_seconds=0))
    assert result.counts["shell"].errors
    assert "no such module" in result.counts["shell"].last_error


def test_what_a_component_keeps_for_ever_times_out_and_does_not_harm_the_next_batch(
    hang_clock: HangClock,
) -> None:
    bolt = shell_bolt("acks_late", timeout_seconds=LONG_SECONDS)
    with topology(bolt, message_timeout_seconds=LEAP_SECONDS - 1, clock=hang_clock.monotonic) as local:
        first = local.run(words("a"))
        hang_clock.mark.unlink()
        second = local.run(words("b", "c"))
    assert "neither acked nor failed" in first.reasons[0]
    # The late answer to "a" was dropped; "b" was answered when "c" came.
    assert emitted(second) == [["late"]]
    assert second.acked == words("b")


def test_a_process_that_ended_between_two_batches_costs_no_tuple() -> None:
    with topology(shell_bolt("counts", fields=("word", "seen", "pid"))) as local:
        ((_, _, pid),) = emitted(local.run(words("a")))
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: _is_zombie_or_gone(pid), f"process {pid} has ended")
        again = local.run(words("b"))
    assert [seen for _, seen, _ in emitted(again)] == [1]
    assert again.acked == words("b")


def test_a_component_that_cannot_start_fails_tuples_with_its_last_words() -> None:
    result = run(shell_bolt("dies_at_once"), "a", "b", message_timeout_seconds=5)
    assert all("no such module" in reason for reason in result.reasons)


def test_a_component_that_does_not_shake_hands_is_given_up_after_the_time_out() -> None:
    result = run(shell_bolt("never_answers", timeout_seconds=0.5), "a")
    assert "did not answer the hand-shake for 0.5 s" in result.reasons[0]


def test_a_value_that_cannot_be_sent_fails_its_tuple_alone() -> None:
    with topology(shell_bolt("upper")) as local:
        result = local.run([("a",), (b"bytes",), ("b",)])
    assert result.acked == words("a", "b")
    assert "bytes" in result.reasons[0]


@pytest.mark.parametrize(
    ("command", "named"),
    [(["no-such-program", "x"], "no-such-program"), (["./run.sh"], str(ROOT / "tests" / "run.sh"))],
)
def test_a_command_that_is_not_there_is_one_error_that_says_where_it_was_looked_for(
    command: list[str], named: str
) -> None:
    bolt = ShellBolt(command, fields=("word",), resources=ROOT / "tests")
    with pytest.raises(InvalidConfig, match=named), topology(bolt) as local:
        local.run(words("a"))


def test_resources_that_are_nowhere_are_one_error_that_names_the_places() -> None:
    bolt = ShellBolt(["sh"], fields=("word",), resources="nowhere-to-be-found")
    with pytest.raises(InvalidConfig, match="nowhere-to-be-found"), topology(bolt) as local:
        local.run(words("a"))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"command": "python3 split.py"}, "in words"),
        ({"command": []}, "in words"),
        ({"command": ["x"], "serializer": "yaml"}, "yaml"),
        ({"command": ["x"], "max_pending": 0}, "max_pending"),
        ({"command": ["x"], "timeout_seconds": 0}, "timeout_seconds"),
        ({"command": None}, "in words"),
        ({"command": ["x\0"]}, "in words"),
        ({"command": ["x"], "timeout_seconds": "5"}, "timeout_seconds"),
        ({"command": ["x"], "timeout_seconds": float("inf")}, "timeout_seconds"),
        ({"command": ["x"], "fields": "word"}, "in a list"),
        ({"command": ["x"], "environment": {"WORKERS": 4}}, "got int for 'WORKERS'"),
        ({"command": ["x"], "environment": {"A=B": "secret"}}, "got str for 'A=B'$"),
        ({"command": ["x"], "environment": ["A=B"]}, "by names, got list"),
        ({"command": ["x"], "fields": ["a"], "streams": {"b": ["c"]}}, "both"),
    ],
)
def test_a_setting_that_is_not_allowed_is_named(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidConfig, match=named):
        ShellBolt(**settings)


def test_what_a_bolt_was_given_may_be_changed_for_the_next_one() -> None:
    given, environment, fields = command("upper"), dict(ENVIRONMENT), ["word"]
    bolt = ShellBolt(given, fields=fields, environment=environment)
    given[-1] = "hangs"
    environment.clear()
    fields.append("count")

    assert emitted(run(bolt, "a")) == [["A"]]


def test_what_describes_the_settings_of_a_bolt_names_no_secret() -> None:
    bolt = ShellBolt(["x"], environment={"TOKEN": "secret"})
    assert "secret" not in repr(bolt._shell)


def _is_zombie_or_gone(pid: int) -> bool:
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_tuple_that_is_larger_than_any_pipe_goes_through() -> None:
    word = "x" * 5_000_000
    result = run(shell_bolt("upper"), "a", word, "b")
    assert [len(value) for (value,) in emitted(result)] == [1, 5_000_000, 1]
    assert not result.failed
