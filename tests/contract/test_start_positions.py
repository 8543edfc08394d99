"""The contract of ``CheckpointStore.open`` and ``begin_again``, where shards begin at positions of their own."""

from dataclasses import replace

import pytest

from kinesis_spout.model.errors import CheckpointUnreadable, InvalidConfig
from kinesis_spout.zookeeper import Application
from kinesis_spout.zookeeper.progress.application import MAX_NAMED_SHARDS
from shard_state import Checkpoint, Position, SequenceNumber, StartPositions
from tests.support.core.shards import everywhere, shards_named
from tests.support.zookeeper.places import Place, Process, RealPlace

CREATED = 1_700_000_000.123
A, B, C, D = (f"shardId-{number:012}" for number in range(4))
AFTER, AT, INSIDE = (
    Position.after(SequenceNumber(10**55)),
    Position.at(SequenceNumber(7)),
    Position.at(SequenceNumber(8, 3)),
)
START = StartPositions(default=Position.trim_horizon(), shards={A: AFTER, B: AT, C: INSIDE})
STORED = {
    A: Checkpoint(start=AFTER, parents=()),
    B: Checkpoint(start=AT, parents=()),
    C: Checkpoint(start=Position.at(SequenceNumber(8)), base=SequenceNumber(8, 2), parents=()),
    D: Checkpoint(start=Position.trim_horizon(), parents=()),
}
UNKNOWN = StartPositions(default=Position.trim_horizon(), shards={A: AT, D: AT, C: AT})


def begun(place: Place, start: StartPositions) -> Process:
    process: Process = place.process("first")
    assert process.store.open(CREATED, start, shards_named(A, B, C, D)) == start
    return process


def test_a_first_start_gives_each_named_shard_its_position(place: Place) -> None:
    process = begun(place, START)
    assert process.store.load() == STORED


def test_the_owner_reads_on_from_there(place: Place) -> None:
    process = begun(place, START)
    process.coordinator.join()
    fresh = Checkpoint(start=Position.trim_horizon(), parents=())
    owned = {shard_id: process.coordinator.acquire(shard_id, fresh) for shard_id in (A, B, C, D)}
    assert {shard_id: checkpoint and checkpoint.read_from for shard_id, checkpoint in owned.items()} == {
        A: AFTER,
        B: AT,
        C: Position.after(SequenceNumber(8, 2)),
        D: Position.trim_horizon(),
    }


def test_a_later_start_changes_nothing_and_may_name_shards_that_are_gone(place: Place) -> None:
    begun(place, START)
    later = place.process("later")
    assert later.store.open(CREATED, UNKNOWN, shards_named(B)) == START
    assert later.store.load() == STORED


def test_a_first_start_at_shards_that_the_stream_has_not_is_refused_and_nothing_is_stored(
    place: Place,
) -> None:
    process = place.process("first")
    with pytest.raises(
        InvalidConfig, match=rf"^expected shards that the stream has \({A}, {B}\), got {C}, {D};"
    ):
        process.store.open(CREATED, UNKNOWN, shards_named(B, A))
    assert process.store.load() == {}
    assert process.store.open(CREATED, everywhere(AT), shards_named(A)) == everywhere(AT)


def test_more_positions_than_a_node_takes_are_refused(place: Place) -> None:
    numbers = range(MAX_NAMED_SHARDS + 1)
    longest = Position.after(SequenceNumber(10**128))
    many = {f"shardId-{number:0120}": longest for number in numbers}
    start = StartPositions(default=Position.trim_horizon(), shards=many)
    process = place.process("first")
    with pytest.raises(InvalidConfig, match=r"positions of 2,000 shards at most, .* got 2,001;"):
        process.store.open(CREATED, start, shards_named(*many))
    del many[f"shardId-{0:0120}"]
    assert process.store.open(CREATED, start, shards_named(*many)) == start


def test_an_unresolved_latest_of_one_shard_is_refused(place: Place) -> None:
    start = StartPositions(default=Position.trim_horizon(), shards={A: AFTER, B: Position.latest()})
    with pytest.raises(InvalidConfig, match="LATEST"):
        place.process("first").store.open(CREATED, start, shards_named(A, B))


def test_a_deployment_begins_again_at_the_positions_of_shards(place: Place) -> None:
    begun(place, everywhere(AT)).close()
    process = place.process("second")
    process.store.open(CREATED, everywhere(AT), shards_named(A, B, C, D))
    assert process.store.begin_again("v2", START, shards_named(A, B, C, D)) == everywhere(AT)
    assert process.store.load() == {
        shard_id: replace(checkpoint, epoch=1) for shard_id, checkpoint in STORED.items()
    }
    assert place.process("third").store.open(CREATED, everywhere(AT), shards_named(A)) == START


def test_a_shard_keeps_the_time_from_which_on_nothing_of_it_may_be_lost(place: Place) -> None:
    since = everywhere(Position.trim_horizon()).resolved(CREATED + 1)
    begun(place, since).close()
    process = place.process("second")
    process.store.open(CREATED, since, shards_named(A))
    assert {each.since for each in process.store.load().values()} == {CREATED + 1}


def test_a_deployment_that_begins_again_keeps_the_time_from_which_on_nothing_may_be_lost(
    place: Place,
) -> None:
    process = begun(place, START)
    again = everywhere(Position.latest()).resolved(CREATED + 2)
    process.store.begin_again("v2", again, shards_named(A, B))
    assert {each.since for each in process.store.load().values()} == {CREATED + 2}


def test_a_deployment_that_names_shards_that_are_not_there_changes_nothing(place: Place) -> None:
    process = begun(place, START)
    with pytest.raises(InvalidConfig, match=f"got {C}, {D};"):
        process.store.begin_again("v2", UNKNOWN, shards_named(A, B))
    assert process.store.load() == STORED
    assert process.store.begin_again("v2", everywhere(AT), shards_named(A)) == START
    assert process.store.begin_again("v2", UNKNOWN, shards_named(A)) is None, "it was done before"


@pytest.mark.zookeeper
def test_whoever_opens_after_a_crash_gives_the_shards_that_are_left_their_positions(
    real_place: RealPlace,
) -> None:
    begun(real_place, everywhere(AT)).close()
    pending = Application(stream_created=CREATED, start=everywhere(AT)).begins_again("v2", START)
    real_place.client.set(real_place.paths.base, pending.encode())
    process = real_place.process("next")
    assert process.store.open(CREATED, everywhere(AT), shards_named(A, C)) == START
    assert process.store.load() == {shard_id: replace(STORED[shard_id], epoch=1) for shard_id in (A, C)}


@pytest.mark.zookeeper
def test_a_mark_of_a_newer_release_is_refused(real_place: RealPlace) -> None:
    begun(real_place, START)
    stored, _ = real_place.client.get(real_place.paths.base)
    real_place.client.set(real_place.paths.base, stored.replace(b'"version":1', b'"version":2'))
    with pytest.raises(CheckpointUnreadable, match="upgrade this one"):
        real_place.process("next").store.open(CREATED, START, shards_named(A))
