"""The contract of ``CheckpointStore.begin_again``: a deployment begins again, once."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from kinesis_spout.model.errors import ConsumerAlive, InvalidConfig, ProgressLost
from kinesis_spout.ports import CheckpointWrite
from kinesis_spout.zookeeper import Application
from shard_state import Checkpoint, Position, SequenceNumber, Shard
from tests.support.core.shards import everywhere, shards_named
from tests.support.kinesis.streams_under_test import LeapingClock
from tests.support.zookeeper.places import Place, Process, RealPlace

pytestmark = pytest.mark.no_second_run

CREATED = 1_700_000_000.123
START = everywhere(Position.at_timestamp(1_700_000_100.5))
AGAIN = everywhere(Position.at_timestamp(1_700_000_999.25))
A, B, C = "shardId-000000000000", "shardId-000000000001", "shardId-000000000002"


def ran(place: Place, member: str = "old") -> Process:
    """A process that began, stored progress on A, and ended."""
    process: Process = place.process(member)
    process.store.open(CREATED, START, shards_named(A, B))
    process.coordinator.join()
    checkpoint = process.coordinator.acquire(A, Checkpoint(start=START.default, parents=()))
    assert checkpoint is not None
    progress = Checkpoint(start=START.default, base=SequenceNumber(7), epoch=checkpoint.epoch)
    assert process.store.commit([CheckpointWrite(shard_id=A, checkpoint=progress)]).committed == {A}
    process.close()
    return process


def opened(place: Place, member: str) -> Process:
    process: Process = place.process(member)
    assert process.store.open(CREATED, START, shards_named(A, B)) in (START, AGAIN)
    return process


def test_every_shard_begins_at_the_new_start_under_a_higher_epoch(place: Place) -> None:
    ran(place)
    process = opened(place, "new")
    before = {shard_id: checkpoint.epoch for shard_id, checkpoint in process.store.load().items()}
    shards = [*shards_named(A), Shard(shard_id=C, parents=(A,))]
    assert process.store.begin_again("v2", AGAIN, shards) == START
    stored = process.store.load()
    assert stored == {
        A: Checkpoint(start=AGAIN.default, parents=(), epoch=before[A] + 1),
        C: Checkpoint(start=AGAIN.default, parents=(A,), epoch=1),
    }
    process.coordinator.join()
    owned = process.coordinator.acquire(A, Checkpoint(start=AGAIN.default, parents=()))
    assert owned is not None
    assert (owned.start, owned.epoch) == (AGAIN.default, before[A] + 2)


def test_it_is_done_once_for_each_deployment(place: Place) -> None:
    ran(place)
    assert opened(place, "one").store.begin_again("v2", AGAIN, shards_named(A)) == START
    restarted = opened(place, "two")
    assert restarted.store.begin_again("v2", everywhere(Position.trim_horizon()), shards_named(A, B)) is None
    assert restarted.store.load()[A].start == AGAIN.default
    later = opened(place, "three").store
    assert later.begin_again("v3", everywhere(Position.trim_horizon()), shards_named(A)) == AGAIN
    assert later.begin_again("v2", AGAIN, shards_named(A)) is None, "also when an older one is deployed anew"


def test_of_several_members_that_start_together_one_does_it(place: Place) -> None:
    ran(place)
    processes = [opened(place, f"member-{number}") for number in range(5)]
    with ThreadPoolExecutor(len(processes)) as pool:
        done = list(
            pool.map(lambda process: process.store.begin_again("v2", AGAIN, shards_named(A, B)), processes)
        )
    assert sorted(map(str, done)) == sorted(map(str, [START, None, None, None, None]))
    for process in processes:
        assert {checkpoint.start for checkpoint in process.store.load().values()} == {AGAIN.default}


def test_it_is_refused_while_a_member_of_another_deployment_lives(place: Place) -> None:
    old: Process = place.process("old")
    old.store.open(CREATED, START, shards_named(A))
    old.coordinator.join()
    # It waits for as long as a session may go on that nobody uses any more.
    leaping = {"clock": LeapingClock()} if isinstance(place, RealPlace) else {}
    new: Process = place.process("new", **leaping)
    new.store.open(CREATED, START, shards_named(A))
    with pytest.raises(ConsumerAlive, match="old"):
        new.store.begin_again("v2", AGAIN, shards_named(A))
    assert old.store.load() == {A: Checkpoint(start=START.default, parents=())}
    old.close()
    assert new.store.begin_again("v2", AGAIN, shards_named(A)) == START


def test_members_of_the_same_deployment_hinder_nothing(place: Place) -> None:
    ran(place)
    first = opened(place, "first")
    first.store.begin_again("v2", AGAIN, shards_named(A))
    first.coordinator.join()
    assert opened(place, "second").store.begin_again("v2", AGAIN, shards_named(A)) is None


def test_who_had_opened_before_and_joins_after_it_learns_that_its_progress_is_gone(place: Place) -> None:
    ran(place)
    late = opened(place, "late")
    opened(place, "new").store.begin_again("v2", AGAIN, shards_named(A))
    with pytest.raises(ProgressLost):
        late.coordinator.join()


def test_an_unresolved_latest_is_refused_and_nothing_changes(place: Place) -> None:
    ran(place)
    process = opened(place, "new")
    with pytest.raises(InvalidConfig, match="LATEST"):
        process.store.begin_again("v2", everywhere(Position.latest()), shards_named(A))
    assert process.store.begin_again("v2", AGAIN, shards_named(A)) == START


@pytest.mark.zookeeper
def test_a_killed_member_is_waited_for(real_place: RealPlace) -> None:
    old = real_place.process("old")
    old.store.open(CREATED, START, shards_named(A))
    old.coordinator.join()
    new = opened(real_place, "new")
    with ThreadPoolExecutor(1) as pool:
        beginning = pool.submit(new.store.begin_again, "v2", AGAIN, shards_named(A))
        real_place.remove_member("old")
        assert beginning.result(timeout=120) == START


@pytest.mark.zookeeper
@pytest.mark.parametrize("opens_with", ["v2", "v3", None])
def test_a_crash_in_between_is_made_good_by_whoever_opens_next(
    real_place: RealPlace, opens_with: str | None
) -> None:
    ran(real_place)
    pending = Application(stream_created=CREATED, start=START).begins_again("v2", AGAIN)
    real_place.client.set(real_place.paths.base, pending.encode())
    process = real_place.process("next")
    assert process.store.open(CREATED, START, shards_named(A, B)) == AGAIN
    assert {checkpoint.start for checkpoint in process.store.load().values()} == {AGAIN.default}
    if opens_with is not None:
        done = process.store.begin_again(opens_with, START, shards_named(A))
        assert done == {"v2": None, "v3": AGAIN}[opens_with]
    found = process.store.read_application()
    assert found is not None
    assert found.begun


@pytest.mark.zookeeper
def test_a_mark_without_deployments_is_kept_as_it_was(real_place: RealPlace) -> None:
    ran(real_place)
    stored, _ = real_place.client.get(real_place.paths.base)
    assert b"deployments" not in stored
    assert Application.decode(stored, "/place").deployments == ()
