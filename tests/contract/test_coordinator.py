"""The contract of the port ``Coordinator``."""

from dataclasses import replace

import pytest

from kinesis_spout.model.clock import SystemClock
from kinesis_spout.model.errors import ProgressLost
from kinesis_spout.ports import CheckpointWrite
from kinesis_spout.zookeeper import ZooKeeperBackend
from shard_state import Checkpoint, Position, SequenceNumber
from tests.support.core.shards import everywhere, shards_named
from tests.support.waiting import wait_until
from tests.support.zookeeper.places import Place, Process, RealPlace
from tests.support.zookeeper.server import SESSION_TIMEOUT_SECONDS

pytestmark = pytest.mark.no_second_run

CREATED = 1_700_000_000.0
FRESH = Checkpoint(start=Position.trim_horizon(), parents=())
A, B = "shardId-000000000000", "shardId-000000000001"


def begun(place: Place, member: str = "one") -> Process:
    process: Process = place.process(member)
    process.store.open(CREATED, everywhere(FRESH.start), shards_named(A))
    process.coordinator.join()
    return process


def really_begun(place: RealPlace, member: str = "one") -> ZooKeeperBackend:
    backend = place.process(member)
    backend.store.open(CREATED, everywhere(FRESH.start), shards_named(A))
    backend.coordinator.join()
    return backend


def epoch_of(process: Process, shard_id: str) -> int | None:
    checkpoint = process.coordinator.acquire(shard_id, FRESH)
    return None if checkpoint is None else checkpoint.epoch


def test_members_are_those_who_joined_and_did_not_leave(place: Place) -> None:
    one = begun(place)
    two = begun(place, "two")
    assert one.coordinator.members() == ["one", "two"]
    two.close()
    assert one.coordinator.members() == ["one"]


def test_joining_twice_is_joining_once(place: Place) -> None:
    process = begun(place)
    process.coordinator.join()
    assert process.coordinator.members() == [process.coordinator.member] == ["one"]


def test_looking_on_makes_no_member(place: Place) -> None:
    onlooker = place.process("onlooker")
    assert onlooker.coordinator.members() == []
    assert onlooker.store.load() == {}


def test_an_owner_is_a_member_even_if_it_never_joined(place: Place) -> None:
    process = place.process("one")
    process.store.open(CREATED, everywhere(FRESH.start), shards_named(A))
    assert epoch_of(process, A) == 1
    assert process.coordinator.members() == ["one"]


def test_an_owner_is_a_member_even_if_its_member_node_was_removed(place: Place) -> None:
    process = begun(place)
    place.remove_member("one")
    assert process.coordinator.members() == []
    assert epoch_of(process, A) is not None
    assert process.coordinator.members() == ["one"]


def test_where_the_progress_was_lost_nothing_is_acquired_and_nobody_joins(place: Place) -> None:
    process = begun(place)
    epoch_of(process, A)
    place.lose_data()
    for shard_id in (A, B):
        with pytest.raises(ProgressLost):
            process.coordinator.acquire(shard_id, FRESH)
    with pytest.raises(ProgressLost):
        process.coordinator.join()
    newcomer = place.process("newcomer")
    assert newcomer.coordinator.members() == []
    assert newcomer.store.load() == {}


def test_nothing_is_acquired_where_the_progress_is_lost_meanwhile(place: Place) -> None:
    process = begun(place)
    place.during_acquisition(process, place.forget_begun)
    with pytest.raises(ProgressLost):
        process.coordinator.acquire(A, FRESH)
    assert place.process("onlooker").store.owners() == {}


def test_what_the_old_owner_commits_while_it_is_fenced_is_not_undone(place: Place) -> None:
    old, new = begun(place), begun(place, "two")
    owned = old.coordinator.acquire(A, FRESH)
    assert owned is not None
    write = CheckpointWrite(shard_id=A, checkpoint=replace(owned, base=SequenceNumber(7)))

    def commit() -> None:
        assert old.store.commit([write]).committed == {A}

    place.during_acquisition(new, commit)
    taken = new.coordinator.acquire(A, FRESH, fences=True)
    assert taken == replace(owned, base=SequenceNumber(7), epoch=2)
    assert new.store.load() == {A: taken}


def test_an_acquisition_of_a_session_that_ends_meanwhile_is_made_again_in_the_next(place: Place) -> None:
    process = begun(place)
    place.expire_during_acquisition(process)
    taken = process.coordinator.acquire(A, FRESH)
    assert taken is not None
    write = CheckpointWrite(shard_id=A, checkpoint=replace(taken, base=SequenceNumber(7)))
    assert process.store.commit([write]).committed == {A}


def test_acquiring_gives_the_stored_checkpoint_with_the_next_epoch(place: Place) -> None:
    process = begun(place)
    first = process.coordinator.acquire(A, FRESH)
    assert first == replace(FRESH, epoch=1)
    moved = replace(FRESH, base=SequenceNumber(7), epoch=1)
    process.store.commit([CheckpointWrite(shard_id=A, checkpoint=moved)])
    process.coordinator.release([A])
    assert process.coordinator.acquire(A, FRESH) == replace(moved, epoch=2)


def test_acquiring_stores_the_raised_epoch(place: Place) -> None:
    process = begun(place)
    process.coordinator.acquire(A, FRESH)
    assert process.store.load()[A].epoch == 1


def test_a_shard_without_progress_begins_fresh_under_epoch_one(place: Place) -> None:
    process = begun(place)
    child = Checkpoint(start=Position.trim_horizon(), app_instance="x")
    assert process.coordinator.acquire(B, child) == Checkpoint(start=child.start, app_instance="x", epoch=1)
    assert process.store.load()[B].epoch == 1


def test_an_owned_shard_is_not_given_to_another(place: Place) -> None:
    one, two = begun(place), begun(place, "two")
    assert epoch_of(one, A) == 1
    assert epoch_of(two, A) is None
    assert one.store.load()[A].epoch == 1


def test_a_released_shard_is_given_to_another_with_a_new_epoch(place: Place) -> None:
    one, two = begun(place), begun(place, "two")
    epoch_of(one, A)
    one.coordinator.release([A, B])
    assert epoch_of(two, A) == 2
    assert epoch_of(one, A) is None
    assert one.coordinator.take_lost() == frozenset()


def test_the_epoch_grows_by_one_at_each_acquisition(place: Place) -> None:
    processes = [begun(place), begun(place, "two")]
    epochs = []
    for turn in range(6):
        process = processes[turn % 2]
        epochs.append(epoch_of(process, A))
        process.coordinator.release([A])
    assert epochs == [1, 2, 3, 4, 5, 6]


def test_acquiring_what_one_owns_begins_a_new_epoch(place: Place) -> None:
    process = begun(place)
    assert epoch_of(process, A) == 1
    assert epoch_of(process, A) == 2
    write = CheckpointWrite(shard_id=A, checkpoint=Checkpoint(start=FRESH.start, epoch=2))
    assert process.store.commit([write]).committed == {A}
    assert process.coordinator.take_lost() == frozenset()


def test_a_late_release_leaves_the_next_owner_alone(place: Place) -> None:
    zombie, heir = begun(place), begun(place, "two")
    epoch_of(zombie, A)
    beliefs = place.beliefs(zombie)
    place.expire(zombie)
    assert epoch_of(heir, A) == 2
    place.put_back(zombie, beliefs)
    zombie.coordinator.release([A])
    assert epoch_of(zombie, A) is None


def test_an_expired_session_loses_every_shard_once(place: Place) -> None:
    process = begun(place)
    epoch_of(process, A)
    epoch_of(process, B)
    place.expire(process)
    assert process.coordinator.take_lost() == {A, B}
    assert process.coordinator.take_lost() == frozenset()


def test_another_takes_over_after_an_expired_session(place: Place) -> None:
    one, two = begun(place), begun(place, "two")
    epoch_of(one, A)
    place.expire(one)
    assert epoch_of(two, A) == 2


def test_the_same_process_goes_on_with_a_new_session(place: Place) -> None:
    process = begun(place)
    epoch_of(process, A)
    place.expire(process)
    process.coordinator.take_lost()
    assert epoch_of(process, A) == 2
    assert process.coordinator.members() == ["one"]
    write = CheckpointWrite(shard_id=A, checkpoint=Checkpoint(start=FRESH.start, epoch=2))
    assert process.store.commit([write]).committed == {A}
    assert process.coordinator.take_lost() == frozenset()


def test_a_shard_whose_owner_node_was_deleted_is_lost(place: Place) -> None:
    process = begun(place)
    epoch_of(process, A)
    epoch_of(process, B)
    place.remove_owner(A)
    lost: set[str] = set()

    def is_lost() -> bool:
        lost.update(process.coordinator.take_lost())
        return bool(lost)

    wait_until(is_lost, "the loss is noticed")
    assert lost == {A}


def test_an_acquisition_whose_answer_is_lost_succeeds(place: Place) -> None:
    process = begun(place)
    place.lose_next_answer(process)
    epoch = epoch_of(process, A)
    assert epoch is not None
    assert process.store.load()[A].epoch == epoch
    write = CheckpointWrite(shard_id=A, checkpoint=Checkpoint(start=FRESH.start, epoch=epoch))
    assert process.store.commit([write]).committed == {A}


def test_an_acquisition_that_never_arrived_is_made_again(place: Place) -> None:
    process = begun(place)
    place.lose_next_request(process)
    assert epoch_of(process, A) == 1


def test_closing_gives_everything_up_and_may_be_repeated(place: Place) -> None:
    one, two = begun(place), begun(place, "two")
    epoch_of(one, A)
    one.coordinator.close()
    one.coordinator.close()
    assert one.coordinator.take_lost() == frozenset()
    assert two.coordinator.members() == ["two"]
    assert epoch_of(two, A) == 2


class FastClock(SystemClock):
    """Mutable. Runs ahead of the machine's clock when told to."""

    def __init__(self) -> None:
        self.ahead_seconds = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_seconds


@pytest.mark.zookeeper
def test_a_silent_connection_loses_its_shards_by_our_own_clock(real_place: RealPlace) -> None:
    """kazoo reports LOST only after reconnecting; until then the session's life is counted here."""
    clock = FastClock()
    process = real_place.process("one", clock=clock)
    process.store.open(CREATED, everywhere(FRESH.start), shards_named(A))
    epoch_of(process, A)
    real_place.proxy(process).close_door()
    wait_until(lambda: process.session.session_id is None, "the cut is noticed")
    assert process.coordinator.take_lost() == frozenset()
    clock.ahead_seconds = SESSION_TIMEOUT_SECONDS
    assert process.coordinator.take_lost() == {A}
    assert not process.session.client.connected


@pytest.mark.zookeeper
def test_a_short_cut_loses_nothing(real_place: RealPlace) -> None:
    process = really_begun(real_place)
    epoch_of(process, A)
    session_id = process.session.session_id
    real_place.proxy(process).close_door()
    wait_until(lambda: process.session.session_id is None, "the cut is noticed")
    real_place.proxy(process).open_door()
    write = CheckpointWrite(shard_id=A, checkpoint=Checkpoint(start=FRESH.start, epoch=1))
    assert process.store.commit([write]).committed == {A}
    assert process.session.session_id == session_id
    assert process.coordinator.take_lost() == frozenset()


@pytest.mark.zookeeper
def test_a_deleted_owner_node_is_noticed_after_a_short_cut_too(real_place: RealPlace) -> None:
    process = really_begun(real_place)
    epoch_of(process, A)
    real_place.proxy(process).close_door()
    real_place.remove_owner(A)
    real_place.proxy(process).open_door()
    wait_until(lambda: process.coordinator.take_lost() == {A}, "the loss is noticed")


@pytest.mark.zookeeper
def test_nothing_is_acquired_of_what_another_began_anew_after_a_loss(real_place: RealPlace) -> None:
    one, two = really_begun(real_place), real_place.process("two")
    real_place.lose_data()
    two.store.open(CREATED, everywhere(Position.at_timestamp(1_700_000_999.0)), shards_named(A))
    real_place.expire(one)
    wait_until(lambda: two.coordinator.members() == ["one"], "it is registered by its new session")
    with pytest.raises(ProgressLost):
        one.coordinator.acquire(A, FRESH)


@pytest.mark.zookeeper
def test_what_is_released_during_a_cut_is_free_afterwards(real_place: RealPlace) -> None:
    one, two = really_begun(real_place), really_begun(real_place, "two")
    epoch_of(one, A)
    real_place.proxy(one).close_door()
    wait_until(lambda: one.session.session_id is None, "the cut is noticed")
    given_up = one.coordinator._ownerships.give_up([A])
    assert set(given_up) == {A}
    real_place.proxy(one).open_door()
    wait_until(lambda: epoch_of(two, A) == 2, "the other may acquire")
    assert one.coordinator.take_lost() == frozenset()


@pytest.mark.zookeeper
def test_the_owners_are_named(real_place: RealPlace) -> None:
    one, two = really_begun(real_place), really_begun(real_place, "two")
    epoch_of(one, A)
    epoch_of(two, B)
    assert real_place.process("onlooker").store.owners() == {A: "one", B: "two"}


@pytest.mark.zookeeper
def test_a_member_registers_again_by_itself_in_a_new_session(real_place: RealPlace) -> None:
    one, two = really_begun(real_place), really_begun(real_place, "two")
    real_place.expire(one)
    wait_until(lambda: two.coordinator.members() == ["one", "two"], "it is back")


@pytest.mark.zookeeper
def test_what_we_gave_up_for_lost_is_free_although_the_session_lives(real_place: RealPlace) -> None:
    """Our clock may be stricter than the server's: then the session goes on, without its shards."""
    clock = FastClock()
    one, two = real_place.process("one", clock=clock), really_begun(real_place, "two")
    epoch_of(one, A)
    epoch_of(one, B)
    real_place.proxy(one).close_door()
    wait_until(lambda: one.session.session_id is None, "the cut is noticed")
    clock.ahead_seconds = 1000.0
    assert one.coordinator.take_lost() == {A, B}
    real_place.proxy(one).open_door()
    wait_until(lambda: epoch_of(two, A) == 2, "the other may acquire")
    assert epoch_of(one, B) == 2


# Pauses


def test_operators_see_who_has_paused_and_why(place: Place) -> None:
    one, operator = begun(place), place.process("operator")
    assert operator.coordinator.pauses() == {}
    assert not one.coordinator.show_pause("97 of 100 failed")
    assert not one.coordinator.show_pause("98 of 100 failed")
    assert operator.coordinator.pauses() == {"one": "98 of 100 failed"}
    one.coordinator.end_pause()
    assert operator.coordinator.pauses() == {}
    one.coordinator.end_pause()


def test_an_operator_tells_all_who_have_paused_to_go_on_and_each_learns_it_once(place: Place) -> None:
    one, two, operator = begun(place), begun(place, "two"), place.process("operator")
    for process in (one, two):
        assert not process.coordinator.show_pause("all failed")
    assert operator.coordinator.resume() == ["one", "two"]
    assert operator.coordinator.resume() == []
    assert one.coordinator.show_pause("all failed")
    assert two.coordinator.show_pause("all failed")
    assert not one.coordinator.show_pause("all failed again")
    assert operator.coordinator.pauses() == {"one": "all failed again"}


def test_what_was_shown_is_gone_with_its_member(place: Place) -> None:
    one, operator = begun(place), place.process("operator")
    one.coordinator.show_pause("all failed")
    one.close()
    assert operator.coordinator.pauses() == {}


def test_a_notice_that_went_with_the_session_was_taken_away_by_nobody(place: Place) -> None:
    one, operator = begun(place), place.process("operator")
    one.coordinator.show_pause("all failed")
    place.expire(one)
    wait_until(lambda: operator.coordinator.pauses() == {}, "the notice is gone")
    assert not one.coordinator.show_pause("all failed")
    assert operator.coordinator.pauses() == {"one": "all failed"}


def test_in_a_place_of_an_older_version_a_pause_is_shown_as_well(real_place: RealPlace) -> None:
    one, operator = really_begun(real_place), real_place.process("operator")
    one.session.client.delete(one.paths.paused)
    assert operator.coordinator.pauses() == {}
    assert not one.coordinator.show_pause("all failed")
    assert operator.coordinator.pauses() == {"one": "all failed"}
