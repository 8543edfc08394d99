"""Local dead letters survive the process, and a crash in the middle of a write harms only that write."""

import os
import resource
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kinesis_spout.dead_letters.json_lines import JsonLinesSink
from kinesis_spout.model.errors import DeadLetterError
from kinesis_spout.model.record import LetterOutcome
from kinesis_spout.testing import ManualClock
from tests.support.consumer.letters import letter

pytestmark = pytest.mark.no_second_run


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("dead-letters-*.jsonl"))


@pytest.mark.parametrize("umask", [0o022, 0])
def test_letters_hold_records_and_are_this_users_alone(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        sink = JsonLinesSink(tmp_path / "dead")
        sink.write([letter(1)])
        sink.close()
    finally:
        os.umask(before)
    (file,) = files(tmp_path / "dead")
    assert (stat.S_IMODE(file.parent.stat().st_mode), stat.S_IMODE(file.stat().st_mode)) == (0o700, 0o600)


def test_files_names_and_new_directories_are_forced_to_disk_before_the_write_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    force = os.fsync

    def record_and_force(descriptor: int) -> None:
        force(descriptor)
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())

    monkeypatch.setattr(os, "fsync", record_and_force)
    sink = JsonLinesSink(tmp_path / "a" / "b")
    sink.write([letter(1)])
    (file,) = files(tmp_path / "a" / "b")
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b", file]
    sink.write([letter(2)])
    assert synced[4:] == [file]
    sink.close()


def test_the_incomplete_last_line_of_a_crash_is_left_out_and_said_and_other_files_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sink = JsonLinesSink(tmp_path)
    sink.write([letter(1), letter(2)])
    sink.close()
    (file,) = files(tmp_path)
    file = file.rename(tmp_path / "dead-letters-1.jsonl")
    later = JsonLinesSink(tmp_path)
    later.write([letter(3)])
    later.close()
    whole = file.read_bytes()
    for kept_bytes in range(len(whole) // 2 + 1, len(whole)):
        file.write_bytes(whole[:kept_bytes])
        caplog.clear()
        assert list(JsonLinesSink(tmp_path).read()) == [letter(1), letter(3)]
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert f"{file}:2: an incomplete last line of {kept_bytes - len(whole) // 2} bytes" in caplog.text


@pytest.mark.parametrize("bad", [b"{", b"", b'{"application": "billing"}', b"\xff\xfe", b"[]"])
def test_a_bad_line_anywhere_else_is_an_error_that_names_file_and_line(tmp_path: Path, bad: bytes) -> None:
    sink = JsonLinesSink(tmp_path)
    sink.write([letter(1)])
    sink.close()
    (file,) = files(tmp_path)
    with file.open("ab") as appended:
        appended.write(bad + b"\n")
    found = iter(JsonLinesSink(tmp_path).read())
    assert next(found) == letter(1)
    with pytest.raises(DeadLetterError) as caught:
        next(found)
    assert str(caught.value).startswith(f"{file}:2: expected a dead letter as JSON")


def test_a_bad_mark_is_an_error_and_does_not_bring_letters_back(tmp_path: Path) -> None:
    sink = JsonLinesSink(tmp_path)
    sink.write([letter(1)])
    sink.mark([letter(1).letter_id], LetterOutcome.REDRIVEN)
    sink.close()
    (marks,) = tmp_path.glob("redriven-*.jsonl")
    marks.write_bytes(b"junk\n")
    with pytest.raises(DeadLetterError, match=r"redriven-.*\.jsonl:1: expected the mark of a letter"):
        list(JsonLinesSink(tmp_path).read())


def test_letters_whose_file_of_dismissals_is_removed_are_listed_again(tmp_path: Path) -> None:
    sink = JsonLinesSink(tmp_path)
    sink.write([letter(1), letter(2)])
    sink.mark([letter(1).letter_id], LetterOutcome.REDRIVEN)
    sink.mark([letter(2).letter_id], LetterOutcome.DISMISSED)
    sink.close()
    assert list(JsonLinesSink(tmp_path).read()) == []
    (dismissals,) = tmp_path.glob("dismissed-*.jsonl")
    dismissals.unlink()
    assert list(JsonLinesSink(tmp_path).read()) == [letter(2)]


def test_an_error_does_not_show_the_users_data(tmp_path: Path) -> None:
    (tmp_path / "dead-letters-1.jsonl").write_bytes(b'{"data": "hunter2"\n')
    with pytest.raises(DeadLetterError) as caught:
        list(JsonLinesSink(tmp_path).read())
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("others", [False, True])
def test_a_full_file_is_followed_by_another_and_sinks_do_not_share_files(
    tmp_path: Path, *, others: bool
) -> None:
    clock = ManualClock(1_769_860_800)
    sink = JsonLinesSink(tmp_path, max_file_bytes=1_000, clock=clock)
    letters = [letter(number, data=b"x" * 600) for number in range(3)]
    for each in letters:
        sink.write([each])
        if others:
            sink.close()
            sink = JsonLinesSink(tmp_path, clock=clock)
    sink.close()
    pid = os.getpid()
    assert [file.name for file in files(tmp_path)] == [
        f"dead-letters-20260131T120000.000000Z-{pid}-{number:04d}.jsonl" for number in range(3)
    ]
    assert list(JsonLinesSink(tmp_path).read()) == letters


def test_the_oldest_file_is_read_first_whoever_wrote_it(tmp_path: Path) -> None:
    for number, moment in [(2, 2_000_000_000), (1, 1_000_000_000)]:
        sink = JsonLinesSink(tmp_path, clock=ManualClock(moment))
        sink.write([letter(number)])
        sink.close()
    assert [found.sequence_number for found in JsonLinesSink(tmp_path).read()] == ["1", "2"]


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    """Let the system refuse to grow a file beyond the size, in the middle of a write, like a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


def test_a_write_cut_short_is_an_error_and_its_repeat_is_read_once_with_all_others(tmp_path: Path) -> None:
    sink = JsonLinesSink(tmp_path)
    sink.write([letter(1)])
    before = files(tmp_path)[0].read_bytes()
    with (
        files_of_at_most(500_000),
        pytest.raises(
            DeadLetterError, match=r"expected to write .*check the directory's permissions and free"
        ),
    ):
        sink.write([letter(2, data=b"x" * 600_000)])
    assert files(tmp_path)[0].read_bytes() == before, "nothing is appended to an incomplete line"
    sink.write([letter(2)])
    sink.close()
    assert list(JsonLinesSink(tmp_path).read()) == [letter(1), letter(2)]


def test_tries_on_a_full_disk_leave_one_file_and_no_litter(tmp_path: Path) -> None:
    sink = JsonLinesSink(tmp_path)
    with files_of_at_most(500):
        for _ in range(5):
            with pytest.raises(DeadLetterError):
                sink.write([letter(1, data=b"x" * 600)])
    sink.write([letter(1)])
    sink.close()
    (file,) = files(tmp_path)
    assert file.read_bytes().count(b"\n") == 1


def test_a_file_that_cannot_be_cut_back_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_descriptor: int, _size: int) -> None:
        raise OSError("append-only")

    sink = JsonLinesSink(tmp_path)
    sink.write([letter(1)])
    with monkeypatch.context() as patched, files_of_at_most(500_000):
        patched.setattr(os, "ftruncate", refuse)
        with pytest.raises(DeadLetterError):
            sink.write([letter(2, data=b"x" * 600_000)])
    sink.write([letter(2)])
    sink.close()
    assert len(files(tmp_path)) == 2
    assert list(JsonLinesSink(tmp_path).read()) == [letter(1), letter(2)]


@pytest.mark.parametrize("below", ["", "dead"])
def test_a_file_in_the_place_of_the_directory_is_noticed_before_the_first_letter(
    tmp_path: Path, below: str
) -> None:
    (tmp_path / "file").touch()
    directory = tmp_path / "file" / below
    with pytest.raises(DeadLetterError, match="expected to be able to write below") as caught:
        JsonLinesSink(directory).check_writable()
    assert str(directory) in str(caught.value)


def test_a_directory_without_permission_is_noticed_before_the_first_letter(tmp_path: Path) -> None:
    sealed = tmp_path / "sealed"
    sealed.mkdir(mode=0o500)
    if os.access(sealed, os.W_OK):
        sealed = Path("/proc/sys")  # root may write anywhere else
    for directory in (sealed, sealed / "dead" / "here"):
        with pytest.raises(DeadLetterError, match="expected to be able to write below"):
            JsonLinesSink(directory).check_writable()


def test_a_directory_that_cannot_be_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DeadLetterError, match="file/dead"):
        JsonLinesSink(tmp_path / "file" / "dead").write([letter(1)])


def test_a_letter_that_was_stored_before_letters_had_tracebacks_is_read(tmp_path: Path) -> None:
    older = (
        b'{"application":"billing","stream":"orders","shard_id":"shardId-000000000000","sequence_number":"1",'
        b'"partition_key":"k","arrival_timestamp":1.5,"data":"eA==","attempts":4,"error":"ValueError: no",'
        b'"reason":"exhausted","died_at":2.5}\n'
    )
    (tmp_path / "dead-letters-older.jsonl").write_bytes(older)
    (found,) = JsonLinesSink(tmp_path).read()
    assert (found.data, found.traceback) == (b"x", None)
