"""What the spool in SQLite does on its disk: files, forks, full disks, other streams."""

import errno
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kinesis_spout.kinesis.write.put_records import Entry
from kinesis_spout.model.errors import InvalidConfig, SpoolError
from kinesis_spout.producer.spool import Durability, SqliteSpool
from kinesis_spout.producer.spool.folder import network_file_system
from kinesis_spout.producer.spool.spool_file import number_ranges

ENTRY = Entry("key", b"data")
DEADLINE_SECONDS = 60.0


def opened(
    folder: Path, durability: Durability = Durability.RECORD, *, max_bytes: int | None = None
) -> SqliteSpool:
    return SqliteSpool(folder / "spool", stream="orders", durability=durability, max_bytes=max_bytes)


def files(folder: Path) -> list[Path]:
    return sorted((folder / "spool").glob("*.spool"))


def log_of(file: Path) -> Path:
    return file.with_name(f"{file.name}-wal")


def left_in(folder: Path) -> list[bytes]:
    with opened(folder) as spool:
        return [record.entry.data for record in spool.recovered(100_000)]


def in_time(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (holds := condition()) and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    return holds


def run_python(script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr
    return done.stdout


@pytest.mark.parametrize(("durability", "synchronous"), [("record", 2), ("interval", 2), ("system", 1)])
def test_sqlite_syncs_each_commit_unless_the_system_is_trusted(
    tmp_path: Path, durability: str, synchronous: int
) -> None:
    with opened(tmp_path, Durability(durability)) as spool:
        spool._file.forget([1])  # which needs no sync, and leaves the setting as it was
        assert spool._file._ask("synchronous") == synchronous


def test_many_files_that_are_left_take_few_descriptors(tmp_path: Path) -> None:
    for number in range(30):
        with opened(tmp_path, Durability.SYSTEM) as spool:
            spool.append(Entry("key", str(number).encode()))
    before = len(list(Path("/proc/self/fd").iterdir()))
    with opened(tmp_path) as spool:
        numbers = [record.number for _ in range(30) for record in spool.recovered(10)]
        assert not spool.recovered(10)
        assert len(numbers) == 30
        assert len(list(Path("/proc/self/fd").iterdir())) <= before + 30 + 10
        spool.confirm(numbers)
    assert not files(tmp_path)


def test_folder_and_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        spool.append(ENTRY)
        assert stat.S_IMODE((tmp_path / "spool").stat().st_mode) == 0o700
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in (tmp_path / "spool").iterdir()}
        assert set(modes.values()) == {0o600}, modes


def test_a_spool_that_is_closed_with_nothing_left_leaves_only_the_mark_of_its_stream(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        spool.confirm([spool.append(ENTRY)])
    assert [each.name for each in (tmp_path / "spool").iterdir()] == ["stream.json"]


def test_a_folder_is_for_one_stream(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with pytest.raises(
        InvalidConfig, match=r"spool of stream 'bills' in .*, got that of 'orders'; name another"
    ):
        SqliteSpool(tmp_path / "spool", stream="bills")


def test_a_folder_on_a_network_file_system_is_refused(tmp_path: Path) -> None:
    device = tmp_path.stat().st_dev
    mounts = tmp_path / "mountinfo"
    line = f"36 35 {os.major(device)}:{os.minor(device)} / /mnt rw - {{}} server:/export rw\n"
    mounts.write_text(line.format("ext4") + "37 35 0:1 / /x rw - nfs4 other:/ rw\n")
    assert network_file_system(tmp_path, mounts) is None
    mounts.write_text(line.format("nfs4"))
    assert network_file_system(tmp_path, mounts) == "nfs4"
    assert network_file_system(tmp_path, tmp_path / "none") is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"durability": "sometimes"}, "durability: expected one of 'record', 'interval', 'system'"),
        ({"interval_records": 0}, "interval_records: expected at least 1"),
        ({"interval_seconds": 0.0}, "interval_seconds: expected more than 0 and at most 86400, got 0.0"),
        ({"max_bytes": 1}, "max_bytes: expected at least 65536"),
    ],
)
def test_a_wrong_setting_says_what_is_allowed(tmp_path: Path, settings: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        SqliteSpool(tmp_path, stream="orders", **settings)  # type: ignore[arg-type]


def test_the_record_that_does_not_fit_is_refused_and_those_before_are_kept(tmp_path: Path) -> None:
    spool = opened(tmp_path, max_bytes=256 * 1024)
    taken: list[int] = []
    for_many = (Entry("key", str(number).encode().ljust(1000)) for number in range(1000))
    with pytest.raises(SpoolError, match=r"read and write the spool in '.*spool', got .*full; give its disk"):
        taken.extend(map(spool.append, for_many))
    assert len(taken) > 100
    with pytest.raises(SpoolError):
        spool.append(Entry("key", bytes(1000)))
    spool.confirm(taken[:100])
    assert in_time(lambda: takes(spool, b"after")), "it goes on when there is room again"
    spool.close()
    left = left_in(tmp_path)
    assert left[-1] == b"after"
    assert [int(data) for data in left[:-1]] == list(range(100, len(taken)))


def takes(spool: SqliteSpool, data: bytes) -> bool:
    try:
        spool.append(Entry("key", data))
    except SpoolError:
        return False
    return True


def test_a_file_system_that_takes_no_more_refuses_the_record_and_keeps_those_before(tmp_path: Path) -> None:
    script = """
import resource, signal, sys
from kinesis_spout.model.errors import SpoolError
from kinesis_spout.producer.spool import SqliteSpool
from kinesis_spout.kinesis.write.put_records import Entry
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
spool = SqliteSpool(sys.argv[1], stream="orders", durability=sys.argv[2], interval_records=10)
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
taken = 0
try:
    while taken < 10_000:
        spool.append(Entry("key", str(taken).encode()))
        taken += 1
except SpoolError as error:
    assert "give its disk free space" in str(error), error
assert 0 < taken < 10_000, taken
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
spool.append(Entry("key", str(taken).encode()))
print(taken + 1, flush=True)
spool.close()
"""
    for durability in Durability:
        taken = int(run_python(script, str(tmp_path / durability / "spool"), durability))
        assert [int(data) for data in left_in(tmp_path / durability)] == list(range(taken))


def test_a_folder_that_may_not_be_written_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("a file")
    with pytest.raises(SpoolError, match="expected to read and write the spool"):
        opened(tmp_path)


def test_the_file_stays_as_small_as_what_is_not_confirmed(tmp_path: Path) -> None:
    with opened(tmp_path, Durability.SYSTEM) as spool:
        for _ in range(20):
            spool.confirm([spool.append(Entry("key", bytes(10_000))) for _ in range(100)])
        assert files(tmp_path)[0].stat().st_size < 4_000_000, "of 20 MB"


def test_space_that_a_backlog_took_is_given_back(tmp_path: Path) -> None:
    with opened(tmp_path, Durability.SYSTEM) as spool:
        numbers = [spool.append(Entry("key", bytes(100_000))) for _ in range(100)]
        assert files(tmp_path)[0].stat().st_size > 5_000_000
        spool.confirm(numbers)
        assert in_time(lambda: files(tmp_path)[0].stat().st_size < 5_000_000)


def test_of_an_interval_no_more_records_are_at_risk_than_it_says(tmp_path: Path) -> None:
    script = """
import os, signal, sys
from kinesis_spout.producer.spool import SqliteSpool
from kinesis_spout.kinesis.write.put_records import Entry
spool = SqliteSpool(sys.argv[1], stream="orders", durability="interval", interval_records=20, interval_seconds=1e3)
for number in range(157):
    spool.append(Entry("key", str(number).encode()))
os.kill(os.getpid(), signal.SIGKILL)
"""
    run_python(script, str(tmp_path / "spool"))
    left = [int(data) for data in left_in(tmp_path)]
    assert left == list(range(len(left)))
    assert 157 - 20 <= len(left) < 157


def test_of_an_interval_a_record_is_in_the_file_after_its_seconds(tmp_path: Path) -> None:
    spool = SqliteSpool(
        tmp_path / "spool",
        stream="orders",
        durability="interval",
        interval_records=10**6,
        interval_seconds=0.05,
    )
    log = log_of(files(tmp_path)[0])
    spool.append(ENTRY)
    assert in_time(lambda: log.stat().st_size > 0)
    spool.close()


def test_a_record_that_is_confirmed_before_it_was_written_is_never_written(tmp_path: Path) -> None:
    spool = opened(tmp_path, Durability.INTERVAL)
    numbers = [spool.append(Entry("key", bytes(1000))) for _ in range(100)]
    spool.confirm(numbers)
    assert log_of(files(tmp_path)[0]).stat().st_size == 0
    spool.close()


def test_what_an_interval_holds_is_written_when_the_interpreter_ends(tmp_path: Path) -> None:
    script = """
import sys
from kinesis_spout.producer.spool import SqliteSpool
from kinesis_spout.kinesis.write.put_records import Entry
kept = SqliteSpool(sys.argv[1], stream="orders", durability="interval", interval_seconds=1000)
kept.append(Entry("key", b"data"))
"""
    run_python(script, str(tmp_path / "spool"))
    assert left_in(tmp_path) == [b"data"]


FORKING = """
import os, signal, sys
from kinesis_spout.model.errors import SpoolError
from kinesis_spout.producer.spool import SqliteSpool
from kinesis_spout.kinesis.write.put_records import Entry
spool = SqliteSpool(sys.argv[1], stream="orders")
spool.append(Entry("key", b"before"))
child = os.fork()
if not child:
    try:
        spool.append(Entry("key", b"child"))
    except SpoolError as error:
        assert "open one after the fork" in str(error)
        print("refused", flush=True)
    spool.close()
    del spool
    own = SqliteSpool(sys.argv[1], stream="orders")
    assert not own.recovered(10), "the parent lives"
    own.append(Entry("key", b"the child's own"))
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
spool.append(Entry("key", b"after"))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_forked_child_is_refused_and_harms_nothing_of_its_parent(tmp_path: Path) -> None:
    assert run_python(FORKING, str(tmp_path / "spool")) == "refused\n"
    with opened(tmp_path) as spool:
        found = [record.entry.data for _ in range(3) for record in spool.recovered(10)]
    assert found == [b"before", b"after", b"the child's own"]


def test_a_child_that_outlives_its_parent_does_not_keep_the_parents_records(tmp_path: Path) -> None:
    script = """
import os, signal, sys
from kinesis_spout.producer.spool import SqliteSpool
from kinesis_spout.kinesis.write.put_records import Entry
spool = SqliteSpool(sys.argv[1], stream="orders")
spool.append(Entry("key", b"data"))
child = os.fork()
if not child:
    os.close(1)
    os.close(2)
    signal.pause()
print(child, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    child = int(run_python(script, str(tmp_path / "spool")))
    try:
        assert left_in(tmp_path) == [b"data"]
    finally:
        os.kill(child, signal.SIGKILL)


def test_two_that_start_at_once_do_not_both_adopt(tmp_path: Path) -> None:
    for owner in range(5):
        with opened(tmp_path) as spool:
            for number in range(20):
                spool.append(Entry("key", f"{owner} {number}".encode()))
    found: list[bytes] = []
    spools = [opened(tmp_path) for _ in range(4)]

    def adopt(spool: SqliteSpool) -> None:
        while records := spool.recovered(7):
            found.extend(record.entry.data for record in records)

    threads = [threading.Thread(target=adopt, args=(spool,)) for spool in spools]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(f"{owner} {number}".encode() for owner in range(5) for number in range(20))
    for spool in spools:
        spool.close()


def test_of_several_owners_the_one_that_began_first_comes_first(tmp_path: Path) -> None:
    spools = [opened(tmp_path) for _ in range(3)]
    for number, spool in enumerate(spools):
        spool.append(Entry("key", str(number).encode()))
    for spool in reversed(spools):
        spool.close()
    with opened(tmp_path) as spool:
        assert [spool.recovered(10)[0].entry.data for _ in range(3)] == [b"0", b"1", b"2"]


def test_what_a_death_while_a_file_was_made_leaves_is_removed(tmp_path: Path) -> None:
    opened(tmp_path).close()
    name = "20200101T000000.000000Z-1-00000000.spool"
    for suffix in ("", ".lock", ".new", ".new-journal", "-wal"):
        if suffix:
            (tmp_path / "spool" / f"{name}{suffix}").touch()
    assert left_in(tmp_path) == []
    assert not list((tmp_path / "spool").glob("2020*"))


def test_what_a_death_while_a_folder_was_marked_leaves_is_removed(tmp_path: Path) -> None:
    (tmp_path / "stream.json.0a1b2c3d").write_text("{")
    with SqliteSpool(tmp_path, stream="orders") as spool:
        assert not spool.recovered(10)
    assert [path.name for path in tmp_path.iterdir()] == ["stream.json"]


def test_the_mark_of_a_folder_says_its_version(tmp_path: Path) -> None:
    opened(tmp_path).close()
    assert json.loads((tmp_path / "spool/stream.json").read_text()) == {"version": 1, "stream": "orders"}


def test_ranges_sum_up_consecutive_numbers() -> None:
    assert list(number_ranges([])) == []
    assert list(number_ranges({5, 1, 2, 3, 9, 10})) == [(1, 3), (5, 5), (9, 10)]


def test_a_spool_that_cannot_be_opened_for_a_full_disk_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(*_: object, **__: object) -> None:
        raise SpoolError("the disk is full")

    with monkeypatch.context() as full:
        full.setattr("kinesis_spout.producer.spool.sqlite_spool.SpoolFile.__init__", is_full)
        for _ in range(3):
            with pytest.raises(SpoolError, match="the disk is full"):
                SqliteSpool(tmp_path, stream="orders")
    assert [file.name for file in tmp_path.iterdir()] == ["stream.json"]


def test_a_folder_that_cannot_be_marked_for_a_full_disk_is_left_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("kinesis_spout.producer.spool.folder.os.fsync", is_full)
    with pytest.raises(SpoolError, match="No space left"):
        SqliteSpool(tmp_path, stream="orders")
    assert not list(tmp_path.iterdir())
