"""Whatever is damaged in a spool's files costs the records that it is in, and is told."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kinesis_spout.kinesis.write.put_records import Entry
from kinesis_spout.model.errors import SpoolDamaged
from kinesis_spout.producer.spool import DiskSpool
from kinesis_spout.producer.spool.spool_file import line_of, lines_in

pytestmark = pytest.mark.no_second_run

RECORDS = 400
PAGE = 4096


def entry(number: int) -> Entry:
    sizes = (10, 100, 500, 3_000, 9_000)
    return Entry(
        f"ключ\n{number}", str(number).encode().rjust(sizes[number % 5]), str(number) if number % 7 else None
    )


OWED = [entry(number) for number in range(RECORDS) if not 100 <= number < 180]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one file that an owner left, of which a fifth is confirmed."""
    folder = tmp_path_factory.mktemp("sound") / "spool"
    with DiskSpool(folder, stream="orders", durability="system") as spool:
        numbers = [spool.append(entry(number)) for number in range(RECORDS)]
        spool.confirm(numbers[100:180])
    return folder


def copied(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to / "spool")
    (file,) = (to / "spool").glob("*.spool/*.jsonl")
    return file


def overwrite(file: Path, at: int, data: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(data)


def recovered(folder: Path, *, confirms: bool = True) -> tuple[list[Entry], list[str]]:
    """Return the records that a producer gets, and the damage that it is told of."""
    given: list[Entry] = []
    told: list[str] = []
    with DiskSpool(folder, stream="orders") as spool:
        while True:
            try:
                records = spool.recovered(50)
            except SpoolDamaged as damage:
                told.append(str(damage))
                continue
            if not records:
                return given, told
            given += [record.entry for record in records]
            if confirms:
                spool.confirm([record.number for record in records])


def test_all_records_of_a_sound_file_come_in_their_order(sound: Path, tmp_path: Path) -> None:
    assert recovered(copied(sound, tmp_path).parents[1]) == (OWED, [])
    assert [path.name for path in (tmp_path / "spool").iterdir()] == ["stream.json"]


def test_a_file_that_ends_in_the_middle_of_a_write_is_not_damaged(sound: Path, tmp_path: Path) -> None:
    file = copied(sound, tmp_path)
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size - 1000)
    assert recovered(file.parents[1]) == (OWED[:-1], [])


@pytest.mark.parametrize("part", [b"\t\t\t", b"\t"])
def test_a_record_that_was_being_overwritten_is_confirmed(sound: Path, tmp_path: Path, part: bytes) -> None:
    file = copied(sound, tmp_path)
    overwrite(file, 0, part)
    assert recovered(file.parents[1]) == (OWED[1:], [])


Damage = Callable[[Path], None]


def garbage_page(file: Path) -> None:
    overwrite(file, 20 * PAGE, random.Random(2).randbytes(PAGE))


def first_page(file: Path) -> None:
    overwrite(file, 0, random.Random(1).randbytes(PAGE))


def zeroed_pages(file: Path) -> None:
    overwrite(file, 20 * PAGE, bytes(3 * PAGE))


def half_file(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size // 2)


def another_byte_in_a_record(file: Path) -> None:
    overwrite(file, file.read_bytes().index(b"ICAg" * 500) + 1000, b"!")


def record_torn_in_two(file: Path) -> None:
    overwrite(file, file.read_bytes().index(b"ICAg" * 500) + 1000, b"\n")


@pytest.mark.parametrize(
    ("damage", "most_lost", "told"),
    [
        (garbage_page, 6, True),
        (first_page, 6, True),
        (zeroed_pages, 12, True),
        (half_file, 200, False),
        (another_byte_in_a_record, 1, True),
        (record_torn_in_two, 1, True),
    ],
)
def test_damage_costs_the_records_that_it_is_in_and_is_told_once(
    sound: Path, tmp_path: Path, damage: Damage, most_lost: int, *, told: bool
) -> None:
    file = copied(sound, tmp_path)
    damage(file)
    damaged = file.read_bytes()
    given, said = recovered(file.parents[1], confirms=False)
    assert [each for each in OWED if each in set(given)] == given
    assert len(OWED) - most_lost <= len(given) < len(OWED)
    assert len(said) == told
    assert file.read_bytes() == damaged, "nothing is confirmed"
    assert recovered(file.parents[1]) == (given, said)
    assert recovered(file.parents[1]) == ([], [])


def test_a_damaged_file_is_named_and_kept_aside_without_what_was_put(sound: Path, tmp_path: Path) -> None:
    file = copied(sound, tmp_path)
    another_byte_in_a_record(file)
    folder = file.parents[1]
    _, (said,) = recovered(folder)
    (aside,) = folder.glob("*.damaged")
    assert f"lost at least 1 record of the spool: damaged in {str(file)!r}, whose others are put" in said
    assert f"The file is kept as {str(aside)!r}" in said
    (line,) = [line for line in aside.read_bytes().split(b"\n") if line.strip(b"\t")]
    assert line.startswith(b'{"crc32":"')
    assert sorted(path.name for path in folder.iterdir()) == sorted([aside.name, "stream.json"])


def test_a_damaged_file_does_not_hold_up_the_others(sound: Path, tmp_path: Path) -> None:
    file = copied(sound, tmp_path)
    first_page(file)
    with DiskSpool(file.parents[1], stream="orders") as spool:
        spool.append(Entry("key", b"later"))
    given, said = recovered(file.parents[1])
    assert given[-1] == Entry("key", b"later")
    assert len(said) == 1


def test_a_mark_that_cannot_be_read_is_an_error_that_says_what_it_should_be(
    sound: Path, tmp_path: Path
) -> None:
    folder = copied(sound, tmp_path).parents[1]
    (folder / "stream.json").write_text("{")
    with pytest.raises(SpoolDamaged, match="write it anew with the stream's name"):
        DiskSpool(folder, stream="orders")


@pytest.mark.parametrize("seed", range(15))
def test_pages_of_garbage_never_give_a_record_that_was_not_put(
    sound: Path, tmp_path: Path, seed: int
) -> None:
    file = copied(sound, tmp_path)
    draws = random.Random(seed)
    for _ in range(draws.randint(1, 20)):
        size = file.stat().st_size
        overwrite(file, draws.randrange(size), draws.randbytes(draws.choice([1, 2, 50, PAGE])))
    given, _ = recovered(file.parents[1])
    assert set(given) <= set(OWED)


def flipped(content: bytes, seed: int) -> bytes:
    draws, changed = random.Random(seed), bytearray(content)
    changed[draws.randrange(len(content))] ^= 1 << draws.randrange(8)
    return bytes(changed)


@pytest.mark.parametrize("seed", range(20))
def test_a_flipped_bit_costs_the_record_that_it_is_in_at_most_and_its_loss_is_told(
    sound: Path, tmp_path: Path, seed: int
) -> None:
    file = copied(sound, tmp_path)
    file.write_bytes(flipped(file.read_bytes(), seed))
    given, told = recovered(file.parents[1])
    assert [each for each in OWED if each in set(given)] == given
    assert len(OWED) - len(given) == len(told) <= 1
    assert all("lost at least 1 record of" in said for said in told)


def test_whatever_bit_is_flipped_all_other_lines_are_read_and_a_loss_is_seen() -> None:
    entries = OWED[:3] + OWED[5:8]
    content = b"".join(map(line_of, entries))
    for at in range(8 * len(content)):
        changed = bytearray(content)
        changed[at // 8] ^= 1 << at % 8
        if at // 8 % 13 and not (changed[at // 8] == 10 or content[at // 8] in b'{}",:\n'):
            continue  # of the data each thirteenth byte, and all that could look like structure
        found = [line.entry for line in lines_in(bytes(changed))]
        whole = [entry for entry in found if entry is not None]
        assert whole == [entry for entry in entries if entry in whole], at
        assert len(whole) >= len(entries) - 1, at
        assert len(found) == len(entries), at
