"""Owners of spools in one folder that append, confirm, recover, end and crash in any order, against a model."""

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kinesis_spout.kinesis.write.put_records import Entry
from kinesis_spout.producer.spool import DiskSpool, Durability, Spool
from kinesis_spout.producer.spool.folder import FolderLock
from kinesis_spout.testing import InMemorySpool, InMemorySpoolFolder

pytestmark = pytest.mark.no_second_run


class SpoolOwners(RuleBasedStateMachine):
    """The model: which records each owner answers for, which of them it was given, and what nobody holds."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0
        self.owners: list[Spool] = []
        self.held: dict[Spool, dict[int, Entry]] = {}
        """By owner: what it appended or was given, and did not confirm."""
        self.to_be_given: set[Entry] = set()
        self.confirmed: set[Entry] = set()
        """These may come again after a crash."""

    def open_one(self) -> Spool:
        raise NotImplementedError

    def crash_one(self, spool: Spool) -> None:
        raise NotImplementedError

    def give(self, entry: Entry) -> None:
        """Note that a record was given to somebody: once, unless it was confirmed and that was forgotten."""
        (self.to_be_given if entry in self.to_be_given else self.confirmed).remove(entry)

    @rule()
    @precondition(lambda self: len(self.owners) < 3)
    def begin(self) -> None:
        self.owners.append(self.open_one())
        self.held[self.owners[-1]] = {}

    @rule(at=st.integers(0, 2), sizes=st.lists(st.sampled_from([0, 10, 5_000]), min_size=1, max_size=5))
    @precondition(lambda self: self.owners)
    def append(self, at: int, sizes: list[int]) -> None:
        spool = self.owners[at % len(self.owners)]
        for size in sizes:
            self.begun += 1
            entry = Entry(str(self.begun), bytes(size))
            self.held[spool][spool.append(entry)] = entry

    @rule(at=st.integers(0, 2), draws=st.randoms(use_true_random=False))
    @precondition(lambda self: self.owners)
    def confirm(self, at: int, draws: Random) -> None:
        spool = self.owners[at % len(self.owners)]
        held = self.held[spool]
        chosen = [number for number in held if draws.random() < 0.5]
        spool.confirm(chosen)
        self.confirmed.update(held.pop(number) for number in chosen)

    @rule(at=st.integers(0, 2), limit=st.integers(1, 7))
    @precondition(lambda self: self.owners)
    def recover(self, at: int, limit: int) -> None:
        spool = self.owners[at % len(self.owners)]
        records = spool.recovered(limit)
        assert len(records) <= limit
        order = [int(record.entry.partition_key) for record in records]
        assert order == sorted(order)
        for number, entry in records:
            self.give(entry)
            assert number not in self.held[spool]
            self.held[spool][number] = entry

    @rule(at=st.integers(0, 2), closes=st.booleans())
    @precondition(lambda self: self.owners)
    def end(self, at: int, closes: bool) -> None:  # noqa: FBT001 - drawn
        spool = self.owners.pop(at % len(self.owners))
        if closes:
            spool.close()
        else:
            self.crash_one(spool)
        self.to_be_given |= set(self.held.pop(spool).values())

    @invariant()
    def no_record_is_with_two(self) -> None:
        held = [entry for each in self.held.values() for entry in each.values()]
        assert len(held) == len(set(held))
        assert not self.to_be_given & set(held)

    def teardown(self) -> None:
        for spool in self.owners:
            spool.close()
            self.to_be_given |= set(self.held.pop(spool).values())
        last = self.open_one()
        while records := last.recovered(5):
            for number, entry in records:
                self.give(entry)
                last.confirm([number])
        last.close()
        assert not self.to_be_given


class OwnersInMemory(SpoolOwners):
    def __init__(self) -> None:
        super().__init__()
        self.folder = InMemorySpoolFolder()

    def open_one(self) -> Spool:
        return self.folder.open()

    def crash_one(self, spool: Spool) -> None:
        assert isinstance(spool, InMemorySpool)
        spool.crash()


def _copied(source: str, target: str) -> None:
    """Copy a file that its owner may remove meanwhile."""
    with suppress(FileNotFoundError):
        shutil.copy(source, target)


class OwnersOnDisk(SpoolOwners):
    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(prefix="spool-model-"))

    def open_one(self) -> Spool:
        return DiskSpool(self.path / "spool", stream="orders", durability=Durability.SYSTEM)

    def crash_one(self, spool: Spool) -> None:
        """Leave what a killed process does: its files as they were, its locks free."""
        kept = Path(tempfile.mkdtemp(prefix="spool-model-"))
        shutil.copytree(self.path / "spool", kept, dirs_exist_ok=True, copy_function=_copied)
        spool.close()
        for owned in kept.glob("*.spool"):
            place = self.path / "spool" / owned.name
            place.mkdir(exist_ok=True)
            if (lock := FolderLock.taken(place)) is not None:  # nobody else's
                shutil.copytree(owned, place, dirs_exist_ok=True)
                lock.release()
        shutil.rmtree(kept)

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.path)


TestOwnersInMemory = OwnersInMemory.TestCase
TestOwnersInMemory.settings = settings(deadline=None, max_examples=50, stateful_step_count=30)
TestOwnersOnDisk = OwnersOnDisk.TestCase
TestOwnersOnDisk.settings = settings(max_examples=12, stateful_step_count=25)
