"""A damaged file is found out, and what is whole in it can be saved."""

import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kinesis_spout.kinesis.write.put_records import Entry
from kinesis_spout.model.errors import SpoolDamaged
from kinesis_spout.producer.spool import SqliteSpool
from kinesis_spout.producer.spool.salvage import records_in, reports, saving

RECORDS = 400
PAGE = 4096
LEAVES_LOG = """
import os, signal, sys
from kinesis_spout.producer.spool import SqliteSpool
from kinesis_spout.kinesis.write.put_records import Entry
spool = SqliteSpool(sys.argv[1], stream="orders", durability="system")
for number in range(int(sys.argv[2])):
    spool.append(Entry(f"key {number}", str(number).encode().rjust(500)))
os.kill(os.getpid(), signal.SIGKILL)
"""


def entry(number: int) -> Entry:
    sizes = (10, 100, 500, 3_000, 9_000)
    return Entry(
        f"ключ {number}", str(number).encode().rjust(sizes[number % 5]), str(number) if number % 7 else None
    )


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one file that an owner left without a log, of which a fifth is confirmed."""
    folder = tmp_path_factory.mktemp("sound") / "spool"
    with SqliteSpool(folder, stream="orders", durability="system") as spool:
        numbers = [spool.append(entry(number)) for number in range(RECORDS)]
        spool.confirm(numbers[100:180])
    return folder


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one file whose owner was killed: much of it is in the log."""
    folder = tmp_path_factory.mktemp("killed") / "spool"
    subprocess.run([sys.executable, "-c", LEAVES_LOG, str(folder), "300"], check=False, timeout=60)
    return folder


def copied(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to / "spool")
    return next((to / "spool").glob("*.spool"))


def log_of(file: Path) -> Path:
    return file.with_name(f"{file.name}-wal")


def overwrite(file: Path, at: int, data: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(data)


def whole(file: Path) -> list[Entry]:
    return [record.entry for record in records_in(file)]


def damage_of(file: Path) -> str:
    """Say what recovery raises, which it does once, and which loses nothing of what is whole."""
    before = whole(file)
    log = log_of(file).read_bytes() if log_of(file).exists() else None
    with SqliteSpool(file.parent, stream="orders") as spool:
        with pytest.raises(SpoolDamaged) as raised:
            all(iter(lambda: spool.recovered(1000), ()))
        assert not spool.recovered(1000), "it is told once"
    assert whole(file) == before
    assert log is None or log_of(file).read_bytes() == log
    return str(raised.value)


def test_all_records_of_a_sound_file_can_be_saved(sound: Path, tmp_path: Path) -> None:
    file = copied(sound, tmp_path)
    expected = [entry(number) for number in range(RECORDS) if not 100 <= number < 180]
    assert whole(file) == expected
    with SqliteSpool(file.parent, stream="orders") as spool:
        assert [record.entry for record in spool.recovered(1000)] == expected


def test_records_in_the_log_of_a_killed_owner_can_be_saved_and_the_log_stays(
    killed: Path, tmp_path: Path
) -> None:
    file = copied(killed, tmp_path)
    log = log_of(file).read_bytes()
    assert len(log) > 100 * PAGE
    assert [int(each.data) for each in whole(file)] == list(range(300))
    assert log_of(file).read_bytes() == log


def test_a_log_that_ends_in_the_middle_of_a_write_is_no_damage(killed: Path, tmp_path: Path) -> None:
    file = copied(killed, tmp_path)
    with log_of(file).open("r+b") as log:
        log.truncate(log_of(file).stat().st_size - 1000)
    with SqliteSpool(file.parent, stream="orders") as spool:
        left = [int(record.entry.data) for record in spool.recovered(1000)]
    assert left == list(range(len(left)))
    assert len(left) >= 298


def test_a_last_page_that_a_kill_kept_from_a_log_with_older_pages_is_no_damage(
    killed: Path, tmp_path: Path
) -> None:
    file = copied(killed, tmp_path)
    log = log_of(file)
    overwrite(log, log.stat().st_size - PAGE, log.read_bytes()[56 : 56 + PAGE])
    with SqliteSpool(file.parent, stream="orders") as spool:
        left = [int(record.entry.data) for record in spool.recovered(1000)]
    assert left == list(range(len(left)))
    assert 298 <= len(left) < 300


Damage = Callable[[Path], None]


def torn_header(file: Path) -> None:
    overwrite(file, 0, b"\xff" * 100)


def garbage_first_page(file: Path) -> None:
    overwrite(file, 0, random.Random(1).randbytes(PAGE))


def garbage_page(file: Path) -> None:
    overwrite(file, 20 * PAGE, random.Random(2).randbytes(PAGE))


def zeroed_pages(file: Path) -> None:
    overwrite(file, 20 * PAGE, bytes(3 * PAGE))


def half_file(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size // 2 // PAGE * PAGE)


def empty_file(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.truncate(0)


def another_byte_in_a_record(file: Path) -> None:
    overwrite(file, file.read_bytes().index(b" " * 2000) + 1000, b"!")


@pytest.mark.parametrize(
    ("damage", "least"),
    [
        (torn_header, 0),
        (garbage_first_page, 0),
        (garbage_page, 310),
        (zeroed_pages, 300),
        (half_file, 100),
        (empty_file, 0),
        (another_byte_in_a_record, 319),
    ],
)
def test_a_damaged_file_is_an_error_that_says_how_much_of_it_is_whole(
    sound: Path, tmp_path: Path, damage: Damage, least: int
) -> None:
    file = copied(sound, tmp_path)
    damage(file)
    said = damage_of(file)
    saved = whole(file)
    assert str(file) in said
    assert f"{len(saved)} records in it are whole" in said
    assert f"kinesis-spout spool save {file.parent}" in said
    assert least <= len(saved) <= 320
    originals = {entry(number) for number in range(RECORDS)}
    assert set(saved) <= originals


def test_a_wrong_page_in_the_log_is_found_out_and_what_was_written_before_it_is_whole(
    killed: Path, tmp_path: Path
) -> None:
    file = copied(killed, tmp_path)
    overwrite(log_of(file), 32 + 50 * (24 + PAGE) + 1000, random.Random(3).randbytes(2000))
    said = damage_of(file)
    assert "pages were written" in said
    assert [int(each.data) for each in whole(file)] == list(range(35))


def test_a_log_with_a_torn_header_is_found_out(killed: Path, tmp_path: Path) -> None:
    file = copied(killed, tmp_path)
    overwrite(log_of(file), 8, b"\0\0\0\0")
    assert "pages were written" in damage_of(file)


@pytest.mark.parametrize("pages", [(10, 11), (10, 40), (40, 41), (10, 11, 25, 40, 41)])
def test_only_the_records_of_damaged_pages_are_lost(
    sound: Path, tmp_path: Path, pages: tuple[int, ...]
) -> None:
    file = copied(sound, tmp_path)
    for page in pages:
        overwrite(file, page * PAGE, random.Random(page).randbytes(PAGE))
    assert 320 - 6 * len(pages) <= len(whole(file)) < 320


@pytest.mark.parametrize(
    ("pragma", "said"),
    [
        ("user_version = 2", "expected version 1, got 2"),
        ("application_id = 1", "expected a spool, got a file of another kind"),
    ],
)
def test_a_file_of_another_version_or_kind_is_not_touched(
    sound: Path, tmp_path: Path, pragma: str, said: str
) -> None:
    file = copied(sound, tmp_path)
    connection = sqlite3.connect(file)
    connection.execute(f"PRAGMA {pragma}")
    connection.close()
    assert said in damage_of(file)


def test_a_file_without_its_table_is_damaged(sound: Path, tmp_path: Path) -> None:
    file = copied(sound, tmp_path)
    connection = sqlite3.connect(file)
    connection.execute("ALTER TABLE records RENAME TO others")
    connection.close()
    damage_of(file)


def test_a_damaged_file_does_not_hold_up_the_others(sound: Path, tmp_path: Path) -> None:
    file = copied(sound, tmp_path)
    torn_header(file)
    with SqliteSpool(file.parent, stream="orders") as spool:
        spool.append(Entry("key", b"later"))
    with SqliteSpool(file.parent, stream="orders") as spool:
        with pytest.raises(SpoolDamaged):
            spool.recovered(10)
        assert [record.entry.data for record in spool.recovered(10)] == [b"later"]


def test_a_mark_that_cannot_be_read_is_an_error_that_says_what_it_should_be(
    sound: Path, tmp_path: Path
) -> None:
    file = copied(sound, tmp_path)
    (file.parent / "stream.json").write_text("{")
    with pytest.raises(SpoolDamaged, match="write it anew with the stream's name"):
        SqliteSpool(file.parent, stream="orders")


@pytest.mark.parametrize("seed", range(30))
def test_pages_of_garbage_never_give_a_record_that_was_not_put(
    sound: Path, tmp_path: Path, seed: int
) -> None:
    file = copied(sound, tmp_path)
    draws = random.Random(seed)
    for _ in range(draws.randint(1, 20)):
        size = file.stat().st_size
        overwrite(file, draws.randrange(size), draws.randbytes(draws.choice([1, 2, 50, PAGE])))
    saved = whole(file)
    assert set(saved) <= {entry(number) for number in range(RECORDS)}
    with SqliteSpool(file.parent, stream="orders") as spool, suppress(SpoolDamaged):
        while records := spool.recovered(100):
            assert {record.entry for record in records} <= set(saved)


def test_the_records_beside_a_damaged_one_are_given_and_the_lost_one_is_named(
    sound: Path, tmp_path: Path
) -> None:
    file = copied(sound, tmp_path)
    another_byte_in_a_record(file)
    with SqliteSpool(file.parent, stream="orders") as spool:
        given = spool.recovered(1000)
        assert len(given) == 319
        with pytest.raises(SpoolDamaged, match="1 of its records differ from their checksums and are lost: "):
            spool.recovered(1000)
        spool.confirm([record.number for record in given])
    assert whole(file) == []
    (report,) = reports(file.parent)
    assert report.state == "damaged"
    assert "1 of its records differ" in report.damage
    with saving(file) as records:
        assert records is not None
        assert list(records) == []
    assert not list(file.parent.glob("*.spool")), "`spool save` moved it aside"


@pytest.mark.parametrize("seed", range(40))
def test_whatever_bit_is_flipped_each_record_is_given_or_its_loss_is_told(
    sound: Path, tmp_path: Path, seed: int
) -> None:
    file = copied(sound, tmp_path)
    draws = random.Random(seed)
    content = bytearray(file.read_bytes())
    content[draws.randrange(len(content))] ^= 1 << draws.randrange(8)
    file.write_bytes(content)
    originals = {entry(number) for number in range(RECORDS) if not 100 <= number < 180}
    given: set[Entry] = set()
    told: list[str] = []
    with SqliteSpool(file.parent, stream="orders") as spool:
        while True:
            try:
                records = spool.recovered(7)
            except SpoolDamaged as damage:
                told.append(str(damage))
                continue
            if not records:
                break
            given |= {record.entry for record in records}
    assert given <= originals
    lost = originals - given
    if lost:
        (said,) = told
        assert "1 of its records differ" in said or f"{len(whole(file))} records in it are whole" in said
    if len(lost) > 1:  # the pages are damaged: what is whole is saved by an operator
        assert len(set(whole(file)) & originals) >= len(originals) // 2


def test_every_record_is_synced_before_it_is_taken_over(tmp_path: Path) -> None:
    with SqliteSpool(tmp_path / "spool", stream="orders") as spool:
        for _ in range(2):
            number = spool.append(Entry("k", b"1"))
            connection = spool._file._connection
            assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
            spool.confirm([number])
            spool._write()  # which forgets, without a sync
