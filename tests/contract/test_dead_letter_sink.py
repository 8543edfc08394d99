"""What every dead letter sink keeps to: the in-memory fake, local and remote files, S3, and a Kinesis stream."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kinesis_spout.dead_letters.json_lines import JsonLinesSink
from kinesis_spout.dead_letters.kinesis_stream import KinesisStreamSink
from kinesis_spout.dead_letters.remote_files import RemoteFilesSink
from kinesis_spout.dead_letters.s3 import S3Sink
from kinesis_spout.kinesis.retry_policy import CallRetryPolicy
from kinesis_spout.model.record import LetterOutcome
from kinesis_spout.ports import DeadLetterSink
from kinesis_spout.testing import InMemoryDeadLetterSink, ManualClock
from tests.support.consumer.letters import letter
from tests.support.consumer.s3_server import a_session, kinesis_with_streams, s3_with_bucket

pytestmark = pytest.mark.no_second_run

Open = Callable[[], DeadLetterSink]
"""Opens the same place once more, as a later process would."""


def in_memory() -> Iterator[Open]:
    sink = InMemoryDeadLetterSink()
    yield lambda: sink


def json_lines(directory: Path) -> Iterator[Open]:
    yield lambda: JsonLinesSink(directory / "dead letters" / "here")


def remote_files(directory: Path) -> Iterator[Open]:
    """A directory of this machine, as PyArrow opens it: no HDFS is at hand."""
    yield lambda: RemoteFilesSink((directory / "dead letters").as_uri())


def kinesis() -> Iterator[Open]:
    with kinesis_with_streams("dead") as client:
        yield lambda: KinesisStreamSink(client, "dead", retry_policy=CallRetryPolicy(clock=ManualClock()))


def s3() -> Iterator[Open]:
    with s3_with_bucket("letters") as endpoint:
        yield lambda: S3Sink(f"s3://letters/billing/dead?endpoint_override={endpoint}", session=a_session)


@pytest.fixture(params=["in_memory", "json_lines", "remote_files", "kinesis", "s3"])
def open_sink(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    match request.param:
        case "in_memory":
            yield from in_memory()
        case "json_lines":
            yield from json_lines(tmp_path)
        case "remote_files":
            yield from remote_files(tmp_path)
        case "kinesis":
            yield from kinesis()
        case "s3":
            yield from s3()


def test_a_check_before_the_first_letter_leaves_nothing_behind(open_sink: Open) -> None:
    sink = open_sink()
    sink.check_writable()
    assert list(open_sink().read()) == []
    sink.write([letter(1)])
    sink.check_writable()
    assert list(open_sink().read()) == [letter(1)]


def test_a_sink_that_was_never_written_to_holds_nothing(open_sink: Open) -> None:
    assert list(open_sink().read()) == []


def test_what_was_written_is_read_by_a_later_process_in_every_field(open_sink: Open) -> None:
    letters = [
        letter(1, data=b'{"amount": -1}\n\x00\xff'),
        letter(2, partition_key=None, arrival_timestamp=None, data=b""),
        letter(3, sequence_number="3:4", partition_key="Ключ\n", error="Grüße", reason="rejected"),
        letter(10**128),
    ]
    open_sink().write(letters)
    assert list(open_sink().read()) == letters


def test_letters_are_read_in_the_order_of_their_writes(open_sink: Open) -> None:
    first, second = open_sink(), open_sink()
    for number, sink in enumerate([first, first, second]):
        sink.write([letter(number)])
    assert [found.sequence_number for found in open_sink().read()] == ["0", "1", "2"]


def test_writing_no_letters_stores_nothing(open_sink: Open) -> None:
    sink = open_sink()
    sink.write([])
    assert list(sink.read()) == []


def test_a_repeated_write_keeps_at_least_one_copy(open_sink: Open) -> None:
    sink = open_sink()
    sink.write([letter(1)])
    sink.write([letter(1)])
    assert set(sink.read()) == {letter(1)}


def test_many_letters_go_in_one_write(open_sink: Open) -> None:
    letters = [letter(number) for number in range(1_203)]
    open_sink().write(letters)
    assert list(open_sink().read()) == letters


def test_a_letter_of_the_largest_record_is_kept_whole_among_others(open_sink: Open) -> None:
    # Not text, not compressible, and 14 times what a record of an ordinary stream can be.
    largest = letter(2, data=b"".join(number.to_bytes(4) for number in range(10 * 1024 * 1024 // 4)))
    open_sink().write([letter(1), largest, letter(3)])
    assert list(open_sink().read()) == [letter(1), largest, letter(3)]


def test_an_error_text_that_is_no_utf_8_loses_no_letter(open_sink: Open) -> None:
    open_sink().write([letter(1, error="bad \ud800 text")])
    assert [found.data for found in open_sink().read()] == [letter(1).data]


def test_reading_again_gives_the_same(open_sink: Open) -> None:
    sink = open_sink()
    sink.write([letter(1), letter(2)])
    assert list(sink.read()) == list(sink.read()) == [letter(1), letter(2)]


@pytest.mark.parametrize("outcome", LetterOutcome)
def test_marked_letters_and_their_copies_are_not_read_again(open_sink: Open, outcome: LetterOutcome) -> None:
    sink = open_sink()
    died_again = letter(1, died_at=1769860999.5)
    sink.write([letter(1), letter(2)])
    sink.mark([letter(1).letter_id], outcome)
    sink.mark([], outcome)
    sink.write([letter(1), died_again])
    assert list(open_sink().read()) == [letter(2), died_again]


def test_a_letter_may_be_marked_more_than_once(open_sink: Open) -> None:
    sink = open_sink()
    sink.write([letter(1), letter(2)])
    for outcome in (*LetterOutcome, *LetterOutcome):
        sink.mark([letter(1).letter_id], outcome)
    assert list(open_sink().read()) == [letter(2)]


def test_dismissed_letters_can_be_read_until_they_are_redriven(open_sink: Open) -> None:
    sink = open_sink()
    sink.write([letter(number) for number in range(1, 5)])
    ids = [letter(number).letter_id for number in range(5)]
    sink.mark(ids[1:4], LetterOutcome.DISMISSED)
    sink.mark(ids[3:4], LetterOutcome.REDRIVEN)
    sink.mark(ids[2:4], LetterOutcome.DISMISSED)
    assert list(open_sink().read()) == [letter(4)]
    assert list(open_sink().read(LetterOutcome.DISMISSED)) == [letter(1), letter(2)]
    assert list(open_sink().read(LetterOutcome.REDRIVEN)) == [letter(3)]


def test_a_sink_of_which_every_letter_is_marked_is_empty(open_sink: Open) -> None:
    letters = [letter(number) for number in range(1_203)]
    large = letter(2_000, data=bytes(3 * 1024 * 1024))
    sink = open_sink()
    sink.write([*letters, large])
    sink.mark([each.letter_id for each in [*letters, large]], LetterOutcome.DISMISSED)
    assert list(open_sink().read()) == []


def test_closing_twice_does_no_harm_and_keeps_what_was_written(open_sink: Open) -> None:
    sink = open_sink()
    sink.write([letter(1)])
    sink.close()
    sink.close()
    assert list(open_sink().read()) == [letter(1)]


WRITE_AND_BE_KILLED = """
import os, signal, sys
from kinesis_spout.dead_letters.json_lines import JsonLinesSink
from kinesis_spout.dead_letters.remote_files import RemoteFilesSink
from tests.support.consumer.letters import letter

sink = JsonLinesSink(sys.argv[2]) if sys.argv[1] == "json_lines" else RemoteFilesSink("file://" + sys.argv[2])
sink.write([letter(1), letter(2)])
sink.mark([letter(1).letter_id], "redriven")
sink.mark([letter(2).letter_id], "dismissed")
sink.write([letter(3)])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("kind", ["json_lines", "remote_files"])
def test_letters_and_marks_survive_a_kill_right_after_the_write_returned(tmp_path: Path, kind: str) -> None:
    arguments = [sys.executable, "-c", WRITE_AND_BE_KILLED, kind, str(tmp_path)]
    killed = subprocess.run(arguments, check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    sink = JsonLinesSink(tmp_path) if kind == "json_lines" else RemoteFilesSink(tmp_path.as_uri())
    assert list(sink.read()) == [letter(3)]
