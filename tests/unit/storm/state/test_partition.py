"""A task's part of a state: what it reads, what it writes, and what a micro-batch that is run again leaves."""

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from kinesis_spout.model.errors import StateUnreadable
from kinesis_spout.storm.state.files import Rows, StateFiles
from kinesis_spout.storm.state.key_values import UnfitValue
from kinesis_spout.storm.state.manifest import PartitionPlace, StateFile
from kinesis_spout.storm.state.partition import StatePartition
from tests.support.storm.state_places import keys_of, place

Key = str
FILLER = "x" * 200


class CountedFiles(StateFiles):
    """Counts what is read and written."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.reads: list[str] = []
        self.rows_written = 0

    def read(self, place: PartitionPlace, name: str) -> tuple[StateFile, Rows]:
        self.reads.append(name)
        return super().read(place, name)

    def write(self, place: PartitionPlace, number: int, rows: object, after: Sequence[str] = ()) -> str:
        assert isinstance(rows, dict)
        self.rows_written += len(rows)
        return super().write(place, number, rows, after)


@pytest.fixture
def files(tmp_path: Path) -> CountedFiles:
    return CountedFiles(str(tmp_path))


def worker(files: StateFiles) -> StatePartition:
    return StatePartition(files, place())


def batch(partition: StatePartition, files: Sequence[str], **values: object) -> tuple[str, ...]:
    """Run a micro-batch; gives the files after it."""
    partition.load(files)
    for key, value in values.items():
        if value is None:
            partition.state.delete(key)
        else:
            partition.state.put(key, value)
    update = partition.end_batch()
    return tuple(files) if update is None else update.files


def content(partition: StatePartition, files: Sequence[str]) -> dict[str, object]:
    partition.load(files)
    return dict(partition.state.items())


def filled(partition: StatePartition, rows: int = 10_000) -> tuple[str, ...]:
    """A first file that is too large to be merged with a few changes."""
    return batch(partition, (), **{f"k{number}": f"{number}{FILLER}" for number in range(rows)})


def test_a_micro_batch_that_changes_nothing_writes_nothing(files: CountedFiles) -> None:
    partition = worker(files)
    partition.load(())
    assert partition.end_batch() is None
    names = batch(partition, (), a=1)
    partition.load(names)
    partition.state.put("a", partition.state.get("a"))
    partition.state.delete("never there")
    assert partition.end_batch() is None


def test_another_worker_finds_what_was_written(files: CountedFiles) -> None:
    names = batch(worker(files), (), a=1, b=[2], c={"three": 3})
    names = batch(worker(files), names, a=None, b=[2, 2])
    assert content(worker(files), names) == {"b": [2, 2], "c": {"three": 3}}


def test_the_worker_that_wrote_a_micro_batch_reads_nothing_for_the_next(files: CountedFiles) -> None:
    partition = worker(files)
    names = filled(partition)
    for number in range(20):
        names = batch(partition, names, a=number)
    assert content(partition, names)["a"] == 19
    assert files.reads == []


def test_a_micro_batch_that_is_run_again_finds_the_state_as_it_was(files: CountedFiles) -> None:
    partition = worker(files)
    names = batch(partition, (), a=1, b=1)
    batch(partition, names, a=2, b=None, c=3)
    assert content(partition, names) == {"a": 1, "b": 1}
    assert files.reads == []


def test_a_micro_batch_that_broke_off_leaves_no_trace(files: CountedFiles) -> None:
    partition = worker(files)
    names = batch(partition, (), a=1)
    partition.load(names)
    partition.state.put("a", 2)
    assert content(partition, names) == {"a": 1}


def test_what_is_changed_in_place_and_put_is_as_it_was_when_the_micro_batch_is_run_again(
    files: CountedFiles,
) -> None:
    """The way in which everybody changes a list: an object shared with what is kept would count twice."""
    partition = worker(files)
    names = batch(partition, (), a=[1])
    for _ in range(2):
        partition.load(names)
        value = partition.state.get("a")
        value.append(2)
        partition.state.put("a", value)
        assert partition.state.get("a") == [1, 2]
        partition.end_batch()
    assert content(partition, names) == {"a": [1]}


def test_what_is_changed_in_place_and_not_put_is_not_kept(files: CountedFiles) -> None:
    partition = worker(files)
    names = batch(partition, (), a=[1])
    partition.load(names)
    partition.state.get("a").append(2)
    assert partition.state.get("a") == [1]
    assert partition.end_batch() is None


def test_a_worker_that_is_some_micro_batches_behind_reads_only_what_it_lacks(files: CountedFiles) -> None:
    writer, reader = worker(files), worker(files)
    names = filled(writer)
    reader.load(names)
    first = files.reads.pop()
    for number in range(30):
        names = batch(writer, names, **{f"n{number}": number, "latest": number, f"k{number}": None})
        if number % 7 == 0:
            assert content(reader, names) == content(worker(files), names)
    files.reads.clear()
    assert content(reader, names)["latest"] == 29
    assert files.reads
    assert first not in files.reads


def test_a_memory_of_a_state_that_was_given_up_is_not_built_upon(files: CountedFiles) -> None:
    """The driver lost its shards, and another went on from the commit before."""
    partition, heir = worker(files), worker(files)
    names = filled(partition)
    given_up = batch(partition, names, a="given up", b="given up")
    given_up = batch(partition, given_up, c="given up")
    partition.load(given_up)
    names = batch(heir, names, a="kept")
    names = batch(heir, names, d="kept")
    after = content(partition, names)
    assert {key: after.get(key) for key in "abcd"} == {"a": "kept", "b": None, "c": None, "d": "kept"}


def test_the_number_of_files_stays_small_and_each_change_is_written_a_few_times(files: CountedFiles) -> None:
    partition = worker(files)
    names: tuple[str, ...] = ()
    longest = 0
    batches, changes = 400, 50
    for number in range(batches):
        changed = {f"k{number}-{each}": FILLER for each in range(changes)}
        names = batch(partition, names, **changed)
        longest = max(longest, len(names))
    assert longest <= 8
    assert files.rows_written <= 10 * batches * changes


def test_a_few_keys_that_change_always_are_written_alone(files: CountedFiles) -> None:
    partition = worker(files)
    names = filled(partition)
    files.rows_written = 0
    for number in range(100):
        names = batch(partition, names, **{f"k{each}": number for each in range(10)})
    assert files.rows_written == 1000
    assert len(names) == 2


def test_a_state_whose_last_key_is_deleted_has_no_files(files: CountedFiles) -> None:
    partition = worker(files)
    names = batch(partition, (), a=1)
    names = batch(partition, names, a=None)
    assert names == ()
    assert content(partition, names) == {}
    assert batch(partition, names, a=2) != ()


def test_a_deleted_key_stays_deleted_when_changes_are_merged(files: CountedFiles) -> None:
    partition = worker(files)
    names = filled(partition)
    names = batch(partition, names, k1=None)
    names = batch(partition, names, k2=None)
    assert len(names) == 2, "both are changes of the same file"
    assert not {"k1", "k2"} & content(worker(files), names).keys()


def test_a_file_that_is_gone_is_an_error_and_the_next_load_reads_all(files: CountedFiles) -> None:
    partition = worker(files)
    names = filled(partition)
    more = batch(worker(files), names, a=1)
    path = Path(files.address, place().path(more[-1]))
    kept = path.read_bytes()
    path.unlink()
    partition.load(names)
    with pytest.raises(StateUnreadable):
        partition.load(more)
    path.write_bytes(kept)
    assert content(partition, more)["a"] == 1


def test_each_task_has_its_own_part(files: CountedFiles) -> None:
    parts = [StatePartition(files, place(index, 2)) for index in range(2)]
    names = []
    for index, partition in enumerate(parts):
        (key,) = keys_of(index, 2, 1)
        partition.load(())
        partition.state.put(key, index)
        update = partition.end_batch()
        assert update is not None
        assert update.index == index
        names.append(update.files)
    assert [content(partition, each) for partition, each in zip(parts, names, strict=True)] == [
        {keys_of(0, 2, 1)[0]: 0},
        {keys_of(1, 2, 1)[0]: 1},
    ]


class Renamed:
    """A class that values were put of, and that is not found when they are read."""


def test_a_value_that_cannot_be_read_ends_the_micro_batch_and_not_the_record_that_asked_for_it(
    files: CountedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = batch(worker(files), (), a=Renamed(), b=1)
    monkeypatch.delattr(f"{__name__}.Renamed")
    partition = worker(files)
    partition.load(names)
    with pytest.raises(StateUnreadable, match=r"stored for the key 'a'.*AttributeError.*Renamed.*deploy"):
        partition.state.get("a")
    partition.state.put("b", 2)
    with pytest.raises(StateUnreadable, match="stored for the key 'a'"):
        partition.end_batch()
    assert batch(partition, names, b=3) != names, "a micro-batch that asks for other keys goes well"


def test_a_value_that_cannot_be_pickled_is_an_error_that_names_the_key_and_nothing_is_written(
    files: CountedFiles,
) -> None:
    partition = worker(files)
    names = batch(partition, (), a=1)
    partition.load(names)
    partition.state.put("b", threading.Lock())
    with pytest.raises(UnfitValue, match=r"got lock for the key 'b' \(TypeError: cannot pickle"):
        partition.end_batch()
    assert content(partition, names) == {"a": 1}
