"""What the spool does on its disk: files, forks, full disks, other streams."""

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
from contextlib import suppress
from math import inf
from pathlib import Path

import pytest

from kinesis_spout.kinesis.write.put_records import Entry
from kinesis_spout.model.errors import InvalidConfig, SpoolDamaged, SpoolError
from kinesis_spout.producer.spool import DiskSpool, Durability
from kinesis_spout.producer.spool.files import SpoolFiles
from kinesis_spout.producer.spool.folder import SpoolFolder, network_file_system
from kinesis_spout.producer.spool.spool_file import SpoolFile, fsync, line_of
from tests.support.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.no_second_run

ENTRY = Entry("key", b"data")


def opened(
    folder: Path, durability: Durability = Durability.RECORD, *, max_bytes: int | None = None
) -> DiskSpool:
    return DiskSpool(folder / "spool", stream="orders", durability=durability, max_bytes=max_bytes)


def files(folder: Path) -> list[Path]:
    return sorted((folder / "spool").glob("*.spool/*"))


def bytes_in(folder: Path) -> int:
    found = 0
    for file in files(folder):
        with suppress(FileNotFoundError):  # its owner removes files meanwhile
            found += file.stat().st_size
    return found


def left_in(folder: Path) -> list[bytes]:
    with opened(folder) as spool:
        return [record.entry.data for found in iter(lambda: spool.recovered(1000), ()) for record in found]


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


def test_a_file_of_somebody_else_in_a_processs_folder_keeps_nothing_from_being_put(tmp_path: Path) -> None:
    with opened(tmp_path) as ended:
        ended.append(ENTRY)
    (files(tmp_path)[0].parent / ".DS_Store").touch()
    with opened(tmp_path) as later:
        later.append(Entry("key", b"later"))
    assert left_in(tmp_path) == [b"data", b"later"]
    with opened(tmp_path) as spool:
        spool.confirm([record.number for found in iter(lambda: spool.recovered(1), ()) for record in found])
    assert [file.name for file in files(tmp_path)] == [".DS_Store"]
    assert not left_in(tmp_path)


def test_a_process_goes_on_in_another_folder_when_its_own_could_not_be_removed(tmp_path: Path) -> None:
    with opened(tmp_path, max_bytes=64 * 1024) as spool:
        spool.confirm([spool.append(Entry("key", bytes(16 * 1024)))])
        (file,) = files(tmp_path)
        (file.parent / ".DS_Store").touch()
        assert in_time(lambda: file.read_bytes().startswith(b"\t"))
        spool.append(ENTRY)
        assert [each.parent != file.parent for each in files(tmp_path)] == [False, True]
        assert not left_in(tmp_path), "nobody else has the records of a process that lives"


def test_folder_and_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        spool.append(ENTRY)
        assert stat.S_IMODE((tmp_path / "spool").stat().st_mode) == 0o700
        for each in (tmp_path / "spool").rglob("*"):
            assert stat.S_IMODE(each.stat().st_mode) == (0o700 if each.is_dir() else 0o600), each


def test_a_spool_that_is_closed_with_nothing_left_leaves_only_the_mark_of_its_stream(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        spool.confirm([spool.append(ENTRY)])
    assert [each.name for each in (tmp_path / "spool").iterdir()] == ["stream.json"]


def test_a_folder_is_for_one_stream(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with pytest.raises(
        InvalidConfig, match=r"spool of stream 'bills' in .*, got that of 'orders'; name another"
    ):
        DiskSpool(tmp_path / "spool", stream="bills")


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
        DiskSpool(tmp_path, stream="orders", **settings)  # type: ignore[arg-type]


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


def takes(spool: DiskSpool, data: bytes) -> bool:
    try:
        spool.append(Entry("key", data))
    except SpoolError:
        return False
    return True


def test_a_file_system_that_takes_no_more_refuses_the_record_and_keeps_those_before(tmp_path: Path) -> None:
    script = """
import resource, signal, sys
from kinesis_spout.model.errors import SpoolError
from kinesis_spout.producer.spool import DiskSpool
from kinesis_spout.kinesis.write.put_records import Entry
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
spool = DiskSpool(sys.argv[1], stream="orders", durability=sys.argv[2], interval_records=10)
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


def test_a_full_disk_refuses_the_next_record_whenever_it_would_be_synced(tmp_path: Path) -> None:
    script = """
import resource, signal, sys
from kinesis_spout.model.errors import SpoolError
from kinesis_spout.producer.spool import DiskSpool
from kinesis_spout.kinesis.write.put_records import Entry
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
spool = DiskSpool(sys.argv[1], stream="orders", durability=sys.argv[2])
spool.append(Entry("key", b"before"))
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
for _ in range(3):
    try:
        spool.append(Entry("key", b"refused"))
    except SpoolError:
        print("refused")
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
spool.append(Entry("key", b"after"))
spool.close()
"""
    for durability in Durability:
        folder = tmp_path / durability
        assert run_python(script, str(folder / "spool"), durability).split() == ["refused"] * 3
        assert left_in(folder) == [b"before", b"after"]


def test_what_was_left_is_taken_over_and_removed_where_not_a_byte_can_be_written(tmp_path: Path) -> None:
    script = """
import resource, signal, sys
from kinesis_spout.model.errors import SpoolError
from kinesis_spout.producer.spool import DiskSpool
from kinesis_spout.kinesis.write.put_records import Entry
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
with DiskSpool(sys.argv[1], stream="orders") as spool:
    try:
        spool.append(Entry("key", b"new"))
    except SpoolError as error:
        assert "give its disk free space" in str(error), error
    while found := spool.recovered(100):
        spool.confirm([record.number for record in found])
        print(*[record.entry.data.decode() for record in found])
"""
    with opened(tmp_path, Durability.SYSTEM) as spool:
        for number in range(2000):
            spool.append(Entry("key", str(number).encode().rjust(3000)))
    assert len(files(tmp_path)) > 1
    assert list(map(int, run_python(script, str(tmp_path / "spool")).split())) == list(range(2000))
    assert [path.name for path in (tmp_path / "spool").iterdir()] == ["stream.json"]


def test_a_folder_that_may_not_be_written_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("a file")
    with pytest.raises(SpoolError, match="expected to read and write the spool"):
        opened(tmp_path)


def test_the_files_stay_as_small_as_what_is_not_confirmed(tmp_path: Path) -> None:
    with opened(tmp_path, Durability.SYSTEM) as spool:
        for _ in range(40):
            spool.confirm([spool.append(Entry("key", bytes(10_000))) for _ in range(100)])
        assert in_time(lambda: bytes_in(tmp_path) < 5_000_000), "of 40 MB"
        assert in_time(lambda: spool.size_bytes == bytes_in(tmp_path))


def test_a_few_records_that_stay_do_not_keep_the_space_of_those_around_them(tmp_path: Path) -> None:
    with opened(tmp_path, Durability.SYSTEM) as spool:
        numbers = [spool.append(Entry("key", str(number).encode().rjust(50_000))) for number in range(400)]
        assert bytes_in(tmp_path) > 20_000_000
        kept = numbers[7::40]
        spool.confirm(set(numbers) - set(kept))
        assert in_time(lambda: bytes_in(tmp_path) < 6_000_000)
        spool.confirm(kept[:1])
    assert [int(data) for data in left_in(tmp_path)] == list(range(47, 400, 40))


def test_whatever_is_synced_when_a_process_that_dies_loses_nothing_it_took_over(tmp_path: Path) -> None:
    script = """
import os, signal, sys
from kinesis_spout.producer.spool import DiskSpool
from kinesis_spout.kinesis.write.put_records import Entry
spool = DiskSpool(sys.argv[1], stream="orders", durability=sys.argv[2], interval_seconds=1e3)
for number in range(157):
    spool.append(Entry("key", str(number).encode()))
os.kill(os.getpid(), signal.SIGKILL)
"""
    for durability in Durability:
        run_python(script, str(tmp_path / durability / "spool"), durability)
        assert [int(data) for data in left_in(tmp_path / durability)] == list(range(157))


FORKING = """
import os, signal, sys
from kinesis_spout.model.errors import SpoolError
from kinesis_spout.producer.spool import DiskSpool
from kinesis_spout.kinesis.write.put_records import Entry
spool = DiskSpool(sys.argv[1], stream="orders")
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
    own = DiskSpool(sys.argv[1], stream="orders")
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
from kinesis_spout.producer.spool import DiskSpool
from kinesis_spout.kinesis.write.put_records import Entry
spool = DiskSpool(sys.argv[1], stream="orders")
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

    def adopt(spool: DiskSpool) -> None:
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
    left = tmp_path / "spool" / "20200101T000000.000000Z-1-00000000.spool"
    left.mkdir()
    (left / "000001.jsonl.new").touch()
    assert left_in(tmp_path) == []
    assert not list((tmp_path / "spool").glob("2020*"))


def test_what_a_death_while_a_folder_was_marked_leaves_is_removed(tmp_path: Path) -> None:
    (tmp_path / "stream.json.0a1b2c3d").write_text("{")
    with DiskSpool(tmp_path, stream="orders") as spool:
        assert not spool.recovered(10)
    assert [path.name for path in tmp_path.iterdir()] == ["stream.json"]


def test_the_mark_of_a_folder_says_its_version(tmp_path: Path) -> None:
    opened(tmp_path).close()
    assert json.loads((tmp_path / "spool/stream.json").read_text()) == {"version": 2, "stream": "orders"}


@pytest.mark.parametrize("version", [1, 3, "2"])
def test_the_folder_of_another_release_is_refused(tmp_path: Path, version: object) -> None:
    opened(tmp_path).close()
    (tmp_path / "spool/stream.json").write_text(json.dumps({"version": version, "stream": "orders"}))
    with pytest.raises(SpoolDamaged, match=r"expected version 2, got .*: another release wrote it"):
        opened(tmp_path)


def test_what_a_failed_sync_may_have_lost_is_written_anew_before_more_is_taken(tmp_path: Path) -> None:
    file = after_a_failed_sync(tmp_path, b"unsynced")
    inode = file.path.stat().st_ino
    assert not file.takes_more
    file.sync()
    assert file.path.stat().st_ino != inode
    found = SpoolFile(file.path, 2, fsync)
    assert [entry.data for _, entry in found.read(10)] == [b"unsynced"]


def test_what_a_failed_sync_did_lose_is_told_once_and_the_rest_is_written_anew(tmp_path: Path) -> None:
    file = after_a_failed_sync(tmp_path, b"before", b"lost", b"after")
    text = file.path.read_bytes()
    at = text.index(b'"data"', text.index(b"crc32", 10))
    file.path.write_bytes(text[:at] + bytes(4) + text[at + 4 :])
    with pytest.raises(SpoolDamaged, match=r"lost 1 record in '.*000001.jsonl': the disk did not keep"):
        file.sync()
    file.sync()
    found = SpoolFile(file.path, 2, fsync)
    assert [entry.data for _, entry in found.read(10)] == [b"before", b"after"]
    assert (file.unconfirmed, file.damaged) == (2, 1)


def after_a_failed_sync(tmp_path: Path, *data: bytes) -> SpoolFile:
    file = SpoolFile(tmp_path / "000001.jsonl", 1, fsync)
    file.make()
    file.append([line_of(Entry("key", each)) for each in data], synced=False)
    file.close()  # as a failed sync does: a second one would say that all is well
    return file


@pytest.mark.parametrize(
    ("unsynced_most", "appended", "unsynced_after"),
    [
        (0, [1, 3, 1], [0, 0, 0]),
        (4, [1, 3, 1, 5, 3, 2], [1, 4, 1, 0, 3, 2]),
        (inf, [1, 3, 1], [1, 4, 5]),
    ],
)
def test_no_more_records_are_unsynced_than_may_be(
    tmp_path: Path, unsynced_most: float, appended: list[int], unsynced_after: list[int]
) -> None:
    synced: list[int] = []
    folder = SpoolFolder(tmp_path)
    folder.open("orders")
    files = SpoolFiles(
        folder,
        unsynced_most=unsynced_most,
        max_bytes=inf,
        fsync=lambda descriptor: synced.append(os.fstat(descriptor).st_size),
    )
    ends, seen = [0], []
    for count in appended:
        lines = [line_of(ENTRY)] * count
        files.store(lines)
        ends.append(ends[-1] + sum(map(len, lines)))
        on_disk = max([size for size in synced if size in range(ends[-1] + 1)], default=0)
        seen.append((ends[-1] - on_disk) // len(lines[0]))
    assert seen == unsynced_after
    files.close()
    assert synced[-1] == ends[-1] or not unsynced_after[-1]


def test_a_folder_that_cannot_be_taken_over_keeps_no_other_from_it_and_is_not_held(tmp_path: Path) -> None:
    for data in (b"first", b"second"):
        with opened(tmp_path) as spool:
            spool.append(Entry("key", data))
    first, second = sorted((tmp_path / "spool").glob("*.spool"))
    in_the_way = first / "000002.jsonl.new"
    in_the_way.mkdir()
    with opened(tmp_path) as spool:
        assert [record.entry.data for record in spool.recovered(10)] == [b"second"]
        with pytest.raises(SpoolError, match=r"Is a directory|Operation not permitted"):
            spool.recovered(10)
        in_the_way.rmdir()
        assert left_in(tmp_path) == [b"first"], "another may have it"
    assert second.exists(), "nothing was confirmed"


def test_a_folder_that_cannot_be_marked_for_a_full_disk_is_left_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("kinesis_spout.producer.spool.folder.os.fsync", is_full)
    with pytest.raises(SpoolError, match="No space left"):
        DiskSpool(tmp_path, stream="orders")
    assert not list(tmp_path.iterdir())
