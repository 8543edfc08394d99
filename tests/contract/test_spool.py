"""What every spool keeps to: the in-memory fake, and SQLite under each policy."""

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

from kinesis_spout.kinesis.write.put_records import Entry
from kinesis_spout.model.errors import SpoolError
from kinesis_spout.producer.spool import DiskSpool, Durability, Spool, Spooled
from kinesis_spout.testing import InMemorySpoolFolder

pytestmark = pytest.mark.no_second_run

Open = Callable[[], Spool]
"""Opens the same place for one more owner."""

ENTRIES = [
    Entry("first", b'{"amount": 1}'),
    Entry("Ключ\n\0'", b"\x00\xff" * 700, "170141183460469231731687303715884105728"),
    Entry("k" * 256, b""),
]


@pytest.fixture(params=["in memory", *Durability])
def open_spool(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    opened: list[Spool] = []
    folder = InMemorySpoolFolder()

    def open_once_more() -> Spool:
        if request.param == "in memory":
            opened.append(folder.open())
        else:
            opened.append(DiskSpool(tmp_path / "spool", stream="orders", durability=request.param))
        return opened[-1]

    yield open_once_more
    for spool in opened:
        spool.close()


def all_recovered(spool: Spool, at_once: int = 1000) -> list[Spooled]:
    found: list[Spooled] = []
    while records := spool.recovered(at_once):
        assert len(records) <= at_once
        found += records
    return found


def entries(records: list[Spooled]) -> list[Entry]:
    return [record.entry for record in records]


def test_a_place_that_nobody_used_has_nothing_to_recover(open_spool: Open) -> None:
    assert not open_spool().recovered(10)


def test_numbers_grow_with_each_record(open_spool: Open) -> None:
    spool = open_spool()
    numbers = [spool.append(entry) for entry in ENTRIES * 3]
    assert numbers == sorted(set(numbers))


def test_what_was_not_confirmed_is_recovered_whole_and_in_order(open_spool: Open) -> None:
    spool = open_spool()
    for entry in ENTRIES:
        spool.append(entry)
    spool.close()
    assert entries(all_recovered(open_spool())) == ENTRIES


def test_a_record_of_the_largest_size_is_recovered_whole(open_spool: Open) -> None:
    largest = Entry("key", b"".join(number.to_bytes(4) for number in range(10 * 1024 * 1024 // 4)))
    spool = open_spool()
    for entry in (ENTRIES[0], largest, ENTRIES[1]):
        spool.append(entry)
    spool.close()
    assert entries(all_recovered(open_spool())) == [ENTRIES[0], largest, ENTRIES[1]]


def test_confirmed_records_do_not_come_again(open_spool: Open) -> None:
    spool = open_spool()
    numbers = [spool.append(entry) for entry in ENTRIES]
    spool.confirm([numbers[2], numbers[0]])
    spool.close()
    assert entries(all_recovered(open_spool())) == [ENTRIES[1]]


def test_to_confirm_twice_or_what_was_never_given_changes_nothing(open_spool: Open) -> None:
    spool = open_spool()
    number = spool.append(ENTRIES[0])
    spool.append(ENTRIES[1])
    for _ in range(2):
        spool.confirm([number])
    spool.confirm([])
    spool.confirm([number + 1000, 5 << 44])
    spool.close()
    assert entries(all_recovered(open_spool())) == [ENTRIES[1]]


def test_recovery_gives_at_most_the_limit_and_each_record_once(open_spool: Open) -> None:
    spool = open_spool()
    given = [Entry(str(number), b"data") for number in range(25)]
    for entry in given:
        spool.append(entry)
    spool.close()
    records = all_recovered(open_spool(), at_once=4)
    assert entries(records) == given
    numbers = [record.number for record in records]
    assert numbers == sorted(set(numbers))


def test_a_living_owners_records_are_not_recovered_by_another(open_spool: Open) -> None:
    first, second = open_spool(), open_spool()
    first.append(ENTRIES[0])
    second.append(ENTRIES[1])
    assert not first.recovered(10)
    assert not second.recovered(10)


def test_what_an_owner_leaves_goes_to_one_of_the_others(open_spool: Open) -> None:
    first, second, third = open_spool(), open_spool(), open_spool()
    first.append(ENTRIES[0])
    first.close()
    assert entries(all_recovered(third)) == [ENTRIES[0]]
    assert not second.recovered(10)


def test_recovered_records_stay_until_they_are_confirmed_by_whom_they_were_given_to(open_spool: Open) -> None:
    first = open_spool()
    for entry in ENTRIES:
        first.append(entry)
    first.close()
    second = open_spool()
    second.confirm([all_recovered(second)[1].number])
    second.close()
    third = open_spool()
    left = all_recovered(third)
    assert entries(left) == [ENTRIES[0], ENTRIES[2]]
    third.confirm([record.number for record in left])
    third.close()
    assert not open_spool().recovered(10)


def test_numbers_of_recovered_and_of_own_records_are_not_mixed_up(open_spool: Open) -> None:
    first = open_spool()
    first.append(ENTRIES[0])
    first.close()
    second = open_spool()
    own = second.append(ENTRIES[1])
    (inherited,) = all_recovered(second)
    assert own != inherited.number
    second.confirm([inherited.number])
    second.close()
    assert entries(all_recovered(open_spool())) == [ENTRIES[1]]


def test_a_closed_spool_refuses_and_may_be_closed_again(open_spool: Open) -> None:
    spool = open_spool()
    spool.close()
    spool.close()
    with pytest.raises(SpoolError, match="closed"):
        spool.append(ENTRIES[0])
    with pytest.raises(SpoolError, match="closed"):
        spool.confirm([1])
    with pytest.raises(SpoolError, match="closed"):
        spool.recovered(1)


def test_threads_that_append_and_confirm_together_lose_and_repeat_nothing(open_spool: Open) -> None:
    spool = open_spool()

    def work(name: int) -> None:
        for index in range(60):
            number = spool.append(Entry(str(name), str(index).encode()))
            if index % 3:
                spool.confirm([number])

    threads = [Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spool.close()
    left = entries(all_recovered(open_spool()))
    for name in range(8):  # the order of each thread is kept
        mine = [int(entry.data) for entry in left if entry.partition_key == str(name)]
        assert mine == list(range(0, 60, 3))
    assert len(left) == 8 * 20
