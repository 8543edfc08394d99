"""Records that are given up are said at once, and then not more often than is read."""

import logging

import pytest

from kinesis_spout.dead_letters.log_lines import DeadLetterLines


def test_dead_letters_are_warned_of_at_once_and_then_together_once_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines = DeadLetterLines(logging.getLogger("some.door"), "; look there")
    lines.written(1, now=100.0)
    assert caplog.messages == ["dead-lettered 1 record, 1 since the start; look there"]
    for tenth in range(1, 10):
        lines.written(2, now=100.0 + tenth / 10)
    assert len(caplog.messages) == 1, "within one second"
    assert lines.due_at == 101.0
    lines.say(101.0)
    lines.say(102.0)
    assert caplog.messages[1:] == ["dead-lettered 18 records, 19 since the start; look there"]
    lines.written(3, now=101.5)
    lines.say()
    assert caplog.messages[2:] == ["dead-lettered 3 records, 22 since the start; look there"], "at the end"
    lines.written(4, now=101.6)
    assert caplog.messages[3:] == ["dead-lettered 4 records, 26 since the start; look there"], "after the end"
    assert {record.levelname for record in caplog.records} == {"WARNING"}
