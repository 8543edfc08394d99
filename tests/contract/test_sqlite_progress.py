"""The contract of ``CheckpointStore`` for the store of ``examples/effectively_once``, as far as it applies."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from examples.effectively_once.sqlite_progress import SqliteProgress
from kinesis_spout import SpoutConfig
from kinesis_spout.consumer.ports import Ports
from kinesis_spout.model.errors import InvalidConfig, StoreError, StoreUnavailable, StreamRecreated
from kinesis_spout.model.record import Record
from kinesis_spout.ports import Attachment
from shard_state import Checkpoint, SequenceNumber
from tests.contract import test_checkpoint_store, test_start_positions
from tests.contract.test_checkpoint_store import CREATED, FRESH, START, A, acquired, at, begun, write
from tests.support.zookeeper.places import InMemoryPlace

pytestmark = pytest.mark.no_second_run

DOES_NOT_APPLY = {
    "SQLite answers in the process: no answer is lost": (
        "test_a_commit_whose_answer_is_lost_is_found_to_have_taken_effect",
        "test_a_commit_that_never_arrived_is_sent_again",
        "test_a_lost_answer_is_resolved_for_fenced_shards_too",
    ),
    "refused, because the effects would stay": (
        "test_a_reset_is_refused_while_a_consumer_lives",
        "test_a_reset_replaces_progress_and_the_epoch_goes_on",
        "test_a_reset_replaces_what_cannot_be_read",
        "test_a_zombie_of_before_a_reset_is_fenced",
        "test_a_deployment_begins_again_at_the_positions_of_shards",
        "test_a_deployment_that_begins_again_keeps_the_time_from_which_on_nothing_may_be_lost",
        "test_a_deployment_that_names_shards_that_are_not_there_changes_nothing",
    ),
    "stored: effect and progress are of one moment, and whoever takes over goes on from there": (
        "test_a_late_write_is_refused_although_nobody_took_over",
    ),
    "a row written by hand under the same epoch is not told from the owner's": (
        "test_a_fenced_shard_is_reported_as_lost",
    ),
    "it is about the fake alone": ("test_what_is_unavailable_may_be_repeated_in_memory",),
}
"""The tests of the contract that are not run here, by the reason."""
_LEFT_OUT = {name for names in DOES_NOT_APPLY.values() for name in names}


def contract(suite: ModuleType) -> dict[str, Callable[..., None]]:
    """Give the tests of a suite that apply; those that are marked are about the real ZooKeeper."""
    return {
        name: test
        for name, test in vars(suite).items()
        if name.startswith("test_")
        and name not in _LEFT_OUT
        and all(mark.name == "parametrize" for mark in getattr(test, "pytestmark", ()))
    }


CONTRACT = {**contract(test_checkpoint_store), **contract(test_start_positions)}
globals().update(CONTRACT)


class SqlitePlace(InMemoryPlace):
    """Who owns a shard is decided in memory; progress is in a database, which every process opens."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.opened: list[SqliteProgress] = []

    def process(self, member: str) -> Any:
        inner = self._zookeeper.process(member)
        progress = SqliteProgress(self.path, app="billing", stream="orders")
        self.opened.append(progress)
        outside: dict[str, Any] = dict.fromkeys(("lister", "open_getter", "group", "dead_letters"))
        ports = progress.instead_of(
            Ports(**{**outside, "store": inner.store, "coordinator": inner.coordinator})
        )
        return SimpleNamespace(
            store=ports.store,
            coordinator=ports.coordinator,
            group=inner.group,
            close=inner.close,
            progress=progress,
        )

    def put(self, shard_id: str, data: bytes) -> None:
        self.execute("DELETE FROM kinesis_progress WHERE shard = ?", shard_id)
        self.execute(
            "INSERT INTO kinesis_progress VALUES ('billing', 'orders', ?, ?, 1, ?)", shard_id, CREATED, data
        )

    def execute(self, sql: str, *values: object) -> list[Any]:
        db = sqlite3.connect(self.path)
        with db:
            rows = db.execute(sql, values).fetchall()
        db.close()
        return rows


@pytest.fixture
def place(tmp_path: Path) -> Iterator[SqlitePlace]:
    place = SqlitePlace(tmp_path / "progress.db")
    yield place
    for progress in place.opened:
        progress.close()


def test_what_is_left_out_exists_and_the_rest_is_run() -> None:
    suites = {**vars(test_checkpoint_store), **vars(test_start_positions)}
    assert suites.keys() >= _LEFT_OUT
    assert len(CONTRACT) > 30


# -- effects


class Spout:
    """Acks what it is told to."""

    def __init__(self) -> None:
        self.acks = True
        self.config = SpoutConfig.of(stream="orders", app="billing")

    def ack(self, message_id: str) -> bool:
        del message_id
        return self.acks


def record(number: int, shard_id: str = A) -> Record:
    return Record(data=b"", sequence_number=str(number), shard_id=shard_id)


def leave(process: Any, number: int, note: str, spout: Spout | None = None) -> bool:
    finished: bool = process.progress.finish(
        spout or Spout(),
        f"{A}:{number}#1.1",
        record(number),
        lambda db: db.execute("INSERT INTO effects VALUES (?)", (note,)),
    )
    return finished


def owner(place: SqlitePlace) -> tuple[Any, Checkpoint]:
    process = begun(place, A)
    place.execute("CREATE TABLE effects (note)")
    return process, acquired(process, A)


def effects(place: SqlitePlace) -> list[str]:
    return [note for (note,) in place.execute("SELECT note FROM effects ORDER BY rowid")]


def with_hole(checkpoint: Checkpoint, base: int, *hole: int) -> Checkpoint:
    after, last = (SequenceNumber(number) for number in hole)
    return Checkpoint(
        start=checkpoint.start,
        base=SequenceNumber(base),
        holes=((after, last),),
        anchor=after,
        epoch=checkpoint.epoch,
    )


def test_a_commit_does_the_effects_of_exactly_the_records_that_it_calls_finished(place: SqlitePlace) -> None:
    process, checkpoint = owner(place)
    for number in (1, 2, 4, 5):
        assert leave(process, number, f"record {number}")
    assert effects(place) == [], "nothing before the commit"
    process.store.commit([write(A, with_hole(checkpoint, 1, 3, 4))])
    assert effects(place) == ["record 1", "record 4"]
    process.store.commit([write(A, at(checkpoint, 5))])
    assert effects(place) == ["record 1", "record 4", "record 2", "record 5"]


def test_an_effect_left_again_of_a_record_that_is_stored_as_finished_is_not_done(place: SqlitePlace) -> None:
    process, checkpoint = owner(place)
    leave(process, 1, "first")
    process.store.commit([write(A, at(checkpoint, 1))])
    leave(process, 1, "again")
    process.store.commit([write(A, at(checkpoint, 1))])
    process.store.commit([write(A, at(checkpoint, 2))])
    assert effects(place) == ["first"]


def test_a_late_ack_that_changes_nothing_leaves_no_effect_and_takes_none_away(place: SqlitePlace) -> None:
    process, checkpoint = owner(place)
    leave(process, 1, "first")
    spout = Spout()
    spout.acks = False
    assert not leave(process, 1, "late", spout)
    assert not leave(process, 2, "not ours", spout)
    process.store.commit([write(A, at(checkpoint, 2))])
    assert effects(place) == ["first"]


def test_who_lost_a_shard_stores_neither_progress_nor_effects(place: SqlitePlace) -> None:
    zombie, old = owner(place)
    leave(zombie, 1, "zombie")
    place.expire(zombie)
    heir = place.process("two")
    heir.store.open(CREATED, START, [])
    new = acquired(heir, A)
    assert zombie.store.commit([write(A, at(old, 1))]).fenced == {A}
    leave(heir, 1, "heir")
    heir.store.commit([write(A, at(new, 1))])
    assert effects(place) == ["heir"]


def test_a_guarantee_that_finishes_records_before_their_effects_is_refused(place: SqlitePlace) -> None:
    process, _ = owner(place)
    spout = Spout()
    spout.config = SpoutConfig.of(stream="orders", app="billing", guarantee="at_most_once")
    with pytest.raises(InvalidConfig, match="at_most_once"):
        leave(process, 1, "never", spout)


def test_effects_left_under_an_earlier_ownership_are_not_done_under_the_next(place: SqlitePlace) -> None:
    process, _ = owner(place)
    leave(process, 1, "before")
    process.coordinator.release([A])
    again = acquired(process, A)
    process.store.commit([write(A, at(again, 1))])
    assert effects(place) == [], "the record comes again, and leaves its effect then"


def test_an_effect_that_fails_stores_nothing_and_names_its_record(place: SqlitePlace) -> None:
    process, checkpoint = owner(place)
    leave(process, 1, "good")
    process.progress.finish(Spout(), "", record(2), lambda db: db.execute("INSERT INTO nowhere VALUES (1)"))
    with pytest.raises(StoreError, match=f"{A}:2.*nowhere") as failed:
        process.store.commit([write(A, at(checkpoint, 2))])
    assert not failed.value.retriable
    assert effects(place) == []
    assert process.store.load() == {A: checkpoint}


def test_a_locked_database_may_be_tried_again_and_loses_no_effect(place: SqlitePlace) -> None:
    process, checkpoint = owner(place)
    leave(process, 1, "one")
    process.progress._db.execute("PRAGMA busy_timeout=0")
    other = sqlite3.connect(place.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        process.store.commit([write(A, at(checkpoint, 1))])
    other.close()
    process.store.commit([write(A, at(checkpoint, 1))])
    assert effects(place) == ["one"]


def test_progress_survives_a_zookeeper_that_lost_everything(place: SqlitePlace) -> None:
    process, checkpoint = owner(place)
    for _ in range(3):
        process.coordinator.release([A])
        checkpoint = acquired(process, A)
    process.store.commit([write(A, at(checkpoint, 5))])
    anew = SqlitePlace(place.path)
    successor = begun(anew, A)
    found = acquired(successor, A)
    anew.opened[0].close()
    assert found.base == SequenceNumber(5)
    assert found.epoch > checkpoint.epoch, "what the old owner writes is refused"


def test_rows_of_a_stream_that_was_made_again_are_refused_also_without_zookeeper(place: SqlitePlace) -> None:
    owner(place)
    anew = SqlitePlace(place.path)
    with pytest.raises(StreamRecreated, match="kinesis_progress"):
        anew.process("one").store.open(CREATED + 60, START, [])
    anew.opened[0].close()


def test_another_beginning_is_refused_because_the_effects_stay(place: SqlitePlace) -> None:
    process, _ = owner(place)
    refused: Mapping[str, Any] = {
        "start_again='v2'": lambda: process.store.begin_again("v2", START, []),
        "a reset": lambda: process.store.reset({A: FRESH}),
        "state": lambda: process.store.commit([], Attachment(name="counts", data=b"1")),
    }
    for what, call in refused.items():
        with pytest.raises(InvalidConfig, match=what):
            call()
    assert process.store.attached("counts") is None
