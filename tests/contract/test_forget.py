"""What operators do to a store beyond the port ``CheckpointStore``: look at every node, and forget all of them."""

import time
from typing import Any

import pytest

from kinesis_spout.model.errors import CheckpointUnreadable, ConsumerAlive, StoreError
from kinesis_spout.operations.stored_progress import OperatorStore
from kinesis_spout.zookeeper import ChunkLimits
from shard_state import Assignment, Checkpoint, Position
from tests.support.core.shards import everywhere, shards_named
from tests.support.waiting import wait_until
from tests.support.zookeeper.places import Place, RealPlace

pytestmark = pytest.mark.no_second_run

CREATED = 1_700_000_000.123
START = everywhere(Position.trim_horizon())
FRESH = Checkpoint(start=START.default, parents=())
A, B, C = "shardId-000000000000", "shardId-000000000001", "shardId-000000000002"


def begun(place: Place) -> Any:
    process = place.process("one")
    process.store.open(CREATED, START, shards_named(A, B))
    process.coordinator.join()
    return process


def operator(place: Place, member: str = "operator") -> OperatorStore:
    store: OperatorStore = place.process(member).store
    return store


def test_what_was_begun_is_forgotten_and_may_begin_on_another_stream(place: Place) -> None:
    process = begun(place)
    process.coordinator.acquire(A, FRESH)
    process.close()
    store = operator(place)
    store.forget()
    assert (store.read_application(), store.shard_ids(), dict(store.load())) == (None, [], {})
    later = everywhere(Position.at_timestamp(5.0))
    assert store.open(CREATED + 3600, later, shards_named(C)) == later
    assert store.load() == {C: Checkpoint(start=later.default, parents=())}


def test_what_a_group_has_left_is_forgotten_too(place: Place) -> None:
    process = begun(place)
    process.group.take_part(lambda: None)
    wait_until(process.group.leads, "it leads")
    assert process.group.assign(Assignment(epoch=1, members=frozenset({"one"})))
    process.group.drain("one")
    process.close()
    operator(place).forget()
    again = begun(place)
    assert again.group.assignment() is None


def test_forgetting_is_refused_while_a_consumer_lives_and_removes_nothing(place: Place) -> None:
    process = begun(place)
    store = operator(place)
    with pytest.raises(ConsumerAlive, match="one"):
        store.forget()
    assert store.load() == {A: FRESH, B: FRESH}
    assert process.store.open(CREATED, START, []) == START


def test_there_must_be_something_to_forget(place: Place) -> None:
    store = operator(place)
    with pytest.raises(StoreError, match="nothing to forget"):
        store.forget()
    begun(place).close()
    store.forget()
    with pytest.raises(StoreError, match="nothing to forget"):
        store.forget()


def test_what_a_broken_off_removal_left_is_forgotten_too(place: Place) -> None:
    process = begun(place)
    process.coordinator.acquire(A, FRESH)
    process.close()
    place.forget_begun()
    store = operator(place)
    with pytest.raises(CheckpointUnreadable, match="mark"):
        store.open(CREATED, START, shards_named(A))
    store.forget()
    assert store.open(CREATED, START, shards_named(A)) == START


def test_a_store_says_which_shards_it_holds_who_owns_them_and_what_cannot_be_read(place: Place) -> None:
    process = begun(place)
    process.coordinator.acquire(A, FRESH)
    place.put(B, b"{")
    store = operator(place)
    application = store.read_application()
    assert application is not None
    assert (application.stream_created, application.start) == (CREATED, START)
    assert store.shard_ids() == [A, B]
    assert store.owners() == {A: "one"}
    (first, first_at), (second, second_at) = (store.read_shards()[each] for each in (A, B))
    assert isinstance(first, Checkpoint)
    assert first.epoch == 1
    assert isinstance(second, CheckpointUnreadable)
    assert B in str(second)
    assert abs(time.time() - first_at) < 60 > abs(time.time() - second_at)


@pytest.mark.zookeeper
def test_more_shards_than_a_transaction_holds_are_forgotten(real_place: RealPlace) -> None:
    shard_ids = [f"shardId-{number:012}" for number in range(7)]
    process = real_place.process("one", ChunkLimits(max_writes=2))
    process.store.open(CREATED, START, shards_named(*shard_ids))
    process.store.forget()
    assert not real_place.client.exists(real_place.paths.base)
