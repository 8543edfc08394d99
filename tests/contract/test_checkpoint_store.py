"""The contract of the port ``CheckpointStore``."""

from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from random import Random

import pytest

from kinesis_spout.model.errors import (
    CheckpointUnreadable,
    ConsumerAlive,
    InvalidConfig,
    ProgressLost,
    StoreUnavailable,
    StreamRecreated,
)
from kinesis_spout.ports import CheckpointWrite, CommitResult
from kinesis_spout.testing import InMemoryZooKeeper, StoreFault
from kinesis_spout.zookeeper import ChunkLimits
from shard_state import SHARD_END, Checkpoint, Position, SequenceNumber, Shard
from tests.support.core.shards import everywhere, shards_named
from tests.support.waiting import wait_until
from tests.support.zookeeper.places import Place, Process, RealPlace

pytestmark = pytest.mark.no_second_run

CREATED = 1_700_000_000.123
START = everywhere(Position.at_timestamp(1_700_000_100.5))
FRESH = Checkpoint(start=START.default, parents=())
A, B, C = "shardId-000000000000", "shardId-000000000001", "shardId-000000000002"


def begun(place: Place, *shard_ids: str, member: str = "one") -> Process:
    process: Process = place.process(member)
    process.store.open(CREATED, START, shards_named(*(shard_ids or (A, B))))
    process.coordinator.join()
    return process


def acquired(process: Process, shard_id: str) -> Checkpoint:
    checkpoint = process.coordinator.acquire(shard_id, FRESH)
    assert checkpoint is not None, f"{shard_id} is somebody else's"
    return checkpoint


def at(checkpoint: Checkpoint, number: int) -> Checkpoint:
    return Checkpoint(start=checkpoint.start, base=SequenceNumber(number), epoch=checkpoint.epoch)


def outcome(result: CommitResult) -> tuple[set[str], set[str]]:
    return set(result.committed), set(result.fenced)


def write(shard_id: str, checkpoint: Checkpoint) -> CheckpointWrite:
    return CheckpointWrite(shard_id=shard_id, checkpoint=checkpoint)


# -- open


def test_the_first_start_gives_every_shard_a_checkpoint_at_the_start(place: Place) -> None:
    process = place.process("one")
    assert process.store.open(CREATED, START, shards_named(A, B)) == START
    assert process.store.load() == {A: FRESH, B: FRESH}


def test_the_first_start_stores_who_came_from_whom(place: Place) -> None:
    process = place.process("one")
    process.store.open(CREATED, START, [*shards_named(A), Shard(shard_id=B, parents=(A,))])
    assert {shard_id: stored.parents for shard_id, stored in process.store.load().items()} == {A: (), B: (A,)}


def test_nothing_is_stored_before_the_first_start(place: Place) -> None:
    assert place.process("one").store.load() == {}


def test_a_later_start_keeps_the_first_position_and_adds_no_shards(place: Place) -> None:
    begun(place, A)
    later = place.process("two")
    assert later.store.open(CREATED, everywhere(Position.trim_horizon()), shards_named(A, B)) == START
    assert later.store.load() == {A: FRESH}


def test_a_later_start_may_still_say_a_time_that_once_was_latest(place: Place) -> None:
    """LATEST is resolved by the caller at each start; the first resolution stays in force (invariant 9)."""
    begun(place, A)
    again = everywhere(Position.latest().resolved(now=1_800_000_000.0))
    assert place.process("two").store.open(CREATED, again, shards_named(A)) == START


def test_several_first_starts_at_once_agree_on_one_start(place: Place) -> None:
    """Whoever comes last before the mark wins, with all its shards."""
    starts = [everywhere(Position.at_timestamp(float(number))) for number in range(1, 7)]
    processes = [place.process(f"member-{start}") for start in starts]
    with ThreadPoolExecutor(len(starts)) as pool:
        openings = [
            pool.submit(process.store.open, CREATED, start, shards_named(A, B))
            for process, start in zip(processes, starts, strict=True)
        ]
        results = {opening.result().default for opening in openings}
    assert len(results) == 1
    assert {checkpoint.start for checkpoint in processes[0].store.load().values()} == results


@pytest.mark.zookeeper
def test_who_begins_late_changes_nothing_of_what_another_has_begun(real_place: RealPlace) -> None:
    """It claimed the beginning, was slow, and another claimed it after that and was quick."""
    slow, quick = real_place.process("slow"), real_place.process("quick")
    other_start = everywhere(Position.trim_horizon())
    real_place.proxy(slow).before_next_transaction(
        lambda: quick.store.open(CREATED, other_start, shards_named(A))
    )
    assert slow.store.open(CREATED, START, shards_named(B)) == other_start
    assert slow.store.load() == {A: Checkpoint(start=other_start.default, parents=())}


def test_progress_that_is_gone_is_an_error_and_not_nothing(place: Place) -> None:
    process = begun(place)
    place.lose_data()
    with pytest.raises(ProgressLost, match=r"expected the mark of .*AT_TIMESTAMP.* found no") as lost:
        process.store.load()
    assert not lost.value.retriable
    with pytest.raises(ProgressLost):
        process.store.check_begun()


def test_progress_that_is_gone_is_an_error_also_where_another_has_begun_anew(place: Place) -> None:
    process = begun(place)
    place.lose_data()
    place.process("two").store.open(
        CREATED, everywhere(Position.at_timestamp(1_700_000_999.0)), shards_named(A, B)
    )
    with pytest.raises(ProgressLost, match=r"found .*1700000999"):
        process.store.load()


def test_an_unresolved_latest_is_refused(place: Place) -> None:
    with pytest.raises(InvalidConfig, match="LATEST"):
        place.process("one").store.open(CREATED, everywhere(Position.latest()), shards_named(A))


def test_a_crash_between_the_shards_and_the_mark_repeats_the_whole(place: Place) -> None:
    begun(place, A, B)
    place.forget_begun()
    other_start = everywhere(Position.trim_horizon())
    again = place.process("two")
    assert again.store.open(CREATED, other_start, shards_named(B, C)) == other_start
    assert again.store.load() == dict.fromkeys((B, C), Checkpoint(start=other_start.default, parents=()))


def test_a_lost_mark_over_progress_is_an_error_and_no_fresh_start(place: Place) -> None:
    process = begun(place, A)
    acquired(process, A)
    place.forget_begun()
    with pytest.raises(CheckpointUnreadable, match="mark"):
        place.process("two").store.open(CREATED, START, shards_named(A))


def test_a_creation_time_told_with_fewer_digits_is_the_same_stream(place: Place) -> None:
    begun(place, A)
    assert place.process("two").store.open(CREATED + 0.9, START, shards_named(A)) == START


HERE, ELSEWHERE = (f"arn:aws:kinesis:{region}:123456789012:stream/orders" for region in ("here-1", "there-1"))


@pytest.mark.parametrize(
    ("begun_on", "found", "later_seconds", "said"),
    [
        (HERE, HERE, 3600, "it was deleted and recreated, or it is one of another endpoint"),
        ("", HERE, 3600, "deleted and recreated, or it is one of another region or account"),
        (
            HERE,
            ELSEWHERE,
            3600,
            f"progress on {HERE} created .*, but {ELSEWHERE} is another stream",
        ),
        ("", HERE, -3600, "is older .*: it is one of another region or account"),
    ],
)
def test_progress_on_another_stream_of_this_name_is_refused_and_says_whose_it_is(
    place: Place, begun_on: str, found: str, later_seconds: int, said: str
) -> None:
    place.process("one").store.open(CREATED, START, shards_named(A), arn=begun_on)
    with pytest.raises(StreamRecreated, match=said) as caught:
        place.process("two").store.open(CREATED + later_seconds, START, shards_named(A), arn=found)
    assert ("forget" in str(caught.value)) == ("deleted" in said)


def test_an_unreadable_checkpoint_is_an_error_that_names_the_shard(place: Place) -> None:
    process = begun(place, A, B)
    place.put(B, b"{")
    with pytest.raises(CheckpointUnreadable, match=B):
        process.store.load()
    with pytest.raises(CheckpointUnreadable, match=B):
        process.coordinator.acquire(B, FRESH)


# -- commit


def test_what_is_committed_is_loaded_with_its_holes_and_attempts(place: Place) -> None:
    process = begun(place, A)
    full = Checkpoint(
        start=START.default,
        base=SequenceNumber(10**40, 3),
        holes=((SequenceNumber(10**40 + 5), SequenceNumber(10**40 + 9)),),
        anchor=SequenceNumber(10**40, 4),
        attempts=((SequenceNumber(10**40, 4), 2),),
        epoch=acquired(process, A).epoch,
        app_instance="instance",
    )
    result = process.store.commit([write(A, full)])
    assert outcome(result) == ({A}, set())
    assert place.process("two").store.load() == {A: full}


def test_many_commits_in_a_row_take_effect(place: Place) -> None:
    process = begun(place, A)
    checkpoint = acquired(process, A)
    for number in range(1, 6):
        assert process.store.commit([write(A, at(checkpoint, number))]).committed == {A}
    assert process.store.load()[A].base == SequenceNumber(5)


def test_a_damaged_checkpoint_is_an_error_and_never_another_place(place: Place) -> None:
    process = begun(place, A)
    stored = at(acquired(process, A), 12_345).encode()
    place.put(A, stored.replace(b"12345", b"12346"))
    with pytest.raises(CheckpointUnreadable, match=f"{A}.*checksum"):
        process.store.load()


def test_an_empty_commit_is_no_error(place: Place) -> None:
    result = begun(place).store.commit([])
    assert outcome(result) == (set(), set())


def test_the_end_of_a_shard_is_stored(place: Place) -> None:
    process = begun(place, A)
    epoch = acquired(process, A).epoch
    process.store.commit([write(A, Checkpoint(start=START.default, base=SHARD_END, epoch=epoch))])
    assert process.store.load()[A].is_shard_end


def test_of_two_writes_for_one_shard_the_later_counts(place: Place) -> None:
    process = begun(place, A)
    checkpoint = acquired(process, A)
    assert process.store.commit([write(A, at(checkpoint, 1)), write(A, at(checkpoint, 2))]).committed == {A}
    assert process.store.load()[A].base == SequenceNumber(2)


def test_a_shard_that_is_not_owned_is_fenced(place: Place) -> None:
    process = begun(place, A, B)
    checkpoint = acquired(process, A)
    result = process.store.commit([write(A, at(checkpoint, 1)), write(B, at(checkpoint, 1))])
    assert outcome(result) == ({A}, {B})
    assert process.store.load()[B] == FRESH


def test_a_write_under_an_older_epoch_is_fenced(place: Place) -> None:
    process = begun(place, A)
    old = acquired(process, A)
    process.coordinator.release([A])
    new = acquired(process, A)
    assert process.store.commit([write(A, at(old, 9))]).fenced == {A}
    assert process.store.commit([write(A, at(new, 1))]).committed == {A}


# -- zombies: processes that have not noticed the end of their session


def test_a_late_write_is_refused_after_another_owner_acquired(place: Place) -> None:
    zombie = begun(place, A)
    old = acquired(zombie, A)
    beliefs = place.beliefs(zombie)
    place.expire(zombie)
    heir = place.process("two")
    new = acquired(heir, A)
    place.put_back(zombie, beliefs)

    assert zombie.store.commit([write(A, at(old, 999))]).fenced == {A}
    assert heir.store.commit([write(A, at(new, 5))]).committed == {A}
    assert zombie.store.commit([write(A, at(old, 999))]).fenced == {A}
    assert heir.store.load()[A].base == SequenceNumber(5)


def test_a_late_write_is_refused_after_the_next_owner_released(place: Place) -> None:
    zombie = begun(place, A)
    old = acquired(zombie, A)
    beliefs = place.beliefs(zombie)
    place.expire(zombie)
    heir = place.process("two")
    new = acquired(heir, A)
    heir.coordinator.release([A])
    place.put_back(zombie, beliefs)

    assert zombie.store.commit([write(A, at(old, 999))]).fenced == {A}
    assert heir.store.load()[A] == new


def test_a_late_write_is_refused_after_the_same_member_acquired_again(place: Place) -> None:
    zombie = begun(place, A)
    old = acquired(zombie, A)
    beliefs = place.beliefs(zombie)
    place.expire(zombie)
    new = acquired(zombie, A)
    place.put_back(zombie, beliefs)

    assert zombie.store.commit([write(A, at(old, 999))]).fenced == {A}
    assert zombie.store.load()[A] == new


def test_a_late_write_is_refused_although_nobody_took_over(place: Place) -> None:
    zombie = begun(place, A)
    old = acquired(zombie, A)
    beliefs = place.beliefs(zombie)
    place.expire(zombie)
    place.put_back(zombie, beliefs)
    assert zombie.store.commit([write(A, at(old, 999))]).fenced == {A}
    assert zombie.store.load()[A] == old


def test_fenced_shards_do_not_stop_the_others(place: Place) -> None:
    zombie = begun(place, A, B, C)
    old = {shard_id: acquired(zombie, shard_id) for shard_id in (A, B, C)}
    beliefs = place.beliefs(zombie)
    place.expire(zombie)
    heir = place.process("two")
    assert acquired(heir, B).epoch == 2
    again = acquired(zombie, C)
    acquired(zombie, A)
    place.put_back(zombie, {A: beliefs[A], B: beliefs[B]})
    result = zombie.store.commit([write(A, at(old[A], 9)), write(B, at(old[B], 9)), write(C, at(again, 9))])
    assert outcome(result) == ({C}, {A, B})


def test_a_fenced_shard_is_reported_as_lost(place: Place) -> None:
    process = begun(place, A)
    checkpoint = acquired(process, A)
    place.put(A, at(checkpoint, 7).encode())  # by hand, past the fence
    assert process.store.commit([write(A, at(checkpoint, 8))]).fenced == {A}
    assert process.coordinator.take_lost() == {A}


# -- lost answers


def test_a_commit_whose_answer_is_lost_is_found_to_have_taken_effect(place: Place) -> None:
    process = begun(place, A, B)
    first, second = acquired(process, A), acquired(process, B)
    place.lose_next_answer(process)
    result = process.store.commit([write(A, at(first, 1)), write(B, at(second, 1))])
    assert outcome(result) == ({A, B}, set())
    assert process.store.commit([write(A, at(first, 2))]).committed == {A}
    assert process.store.load()[A].base == SequenceNumber(2)


def test_a_commit_that_never_arrived_is_sent_again(place: Place) -> None:
    process = begun(place, A, B)
    first, second = acquired(process, A), acquired(process, B)
    place.lose_next_request(process)
    result = process.store.commit([write(A, at(first, 1)), write(B, at(second, 1))])
    assert outcome(result) == ({A, B}, set())
    assert process.store.commit([write(B, at(second, 2))]).committed == {B}


def test_a_lost_answer_is_resolved_for_fenced_shards_too(place: Place) -> None:
    process = begun(place, A, B)
    first, second = acquired(process, A), acquired(process, B)
    place.put(B, at(second, 7).encode())
    place.lose_next_answer(process)
    result = process.store.commit([write(A, at(first, 1)), write(B, at(second, 1))])
    assert outcome(result) == ({A}, {B})


@pytest.mark.zookeeper
def test_the_lost_answers_were_really_lost(real_place: RealPlace) -> None:
    process = real_place.process("one")
    process.store.open(CREATED, START, shards_named(A))
    checkpoint = acquired(process, A)
    real_place.lose_next_answer(process)
    process.store.commit([write(A, at(checkpoint, 1))])
    real_place.lose_next_request(process)
    process.store.commit([write(A, at(checkpoint, 2))])
    proxy = real_place.proxy(process)
    assert (proxy.answers_lost, proxy.requests_lost) == (1, 1)


@pytest.mark.zookeeper
@pytest.mark.parametrize("applied", [True, False], ids=["applied", "not applied"])
def test_a_write_left_in_doubt_is_resolved_by_the_next_commit(real_place: RealPlace, applied: bool) -> None:  # noqa: FBT001
    process = real_place.process("one")
    process.store.open(CREATED, START, shards_named(A))
    checkpoint = acquired(process, A)
    # As a commit leaves it that ended before it could read again.
    encoded = at(checkpoint, 1).encode()
    process.store._ownerships.sending({A: encoded})
    if applied:
        real_place.put(A, encoded)
    assert process.store.commit([write(A, at(checkpoint, 2))]).committed == {A}
    assert process.store.load()[A].base == SequenceNumber(2)


@pytest.mark.zookeeper
def test_a_commit_without_connection_is_unavailable_and_may_be_repeated(real_place: RealPlace) -> None:
    # An answer is waited for as long as the session lives.
    process = real_place.process("one", session_timeout_seconds=4.0)
    process.store.open(CREATED, START, shards_named(A))
    checkpoint = acquired(process, A)
    real_place.proxy(process).close_door()
    wait_until(lambda: not process.session.client.connected, "the client notices")
    with pytest.raises(StoreUnavailable):
        process.store.commit([write(A, at(checkpoint, 1))])
    real_place.proxy(process).open_door()
    again = acquired(process, A)
    assert process.store.commit([write(A, at(again, 1))]).committed == {A}


def test_what_is_unavailable_may_be_repeated_in_memory() -> None:
    zookeeper = InMemoryZooKeeper()
    process = zookeeper.process("one")
    process.store.open(CREATED, START, shards_named(A))
    checkpoint = acquired(process, A)
    zookeeper.fail_next(StoreFault.UNAVAILABLE)
    with pytest.raises(StoreUnavailable):
        process.store.commit([write(A, at(checkpoint, 1))])
    assert process.store.commit([write(A, at(checkpoint, 1))]).committed == {A}
    zookeeper.set_available(False)
    with pytest.raises(StoreUnavailable):
        process.store.load()


# -- sizes


def test_a_thousand_shards_are_committed_at_once_in_one_transaction(place: Place) -> None:
    shard_ids = [f"shardId-{number:012}" for number in range(1000)]
    process = place.process("one")
    process.store.open(CREATED, START, shards_named(*shard_ids))
    owned = {shard_id: acquired(process, shard_id) for shard_id in shard_ids}
    result = process.store.commit([write(shard_id, at(owned[shard_id], 1)) for shard_id in shard_ids])
    assert outcome(result) == (set(shard_ids), set())
    assert {checkpoint.base for checkpoint in process.store.load().values()} == {SequenceNumber(1)}
    if isinstance(place, RealPlace):
        stats = [place.client.get(place.paths.shard(shard_id))[1] for shard_id in shard_ids]
        assert len({stat.mzxid for stat in stats}) == 1, "expected one transaction id"


@pytest.mark.zookeeper
@pytest.mark.parametrize("limits", [ChunkLimits(max_bytes=600), ChunkLimits(max_writes=2)])
def test_large_commits_are_cut_into_several_transactions(real_place: RealPlace, limits: ChunkLimits) -> None:
    shard_ids = [f"shardId-{number:012}" for number in range(7)]
    process = real_place.process("one", limits)
    process.store.open(CREATED, START, shards_named(*shard_ids))
    owned = {shard_id: acquired(process, shard_id) for shard_id in shard_ids}
    real_place.put(shard_ids[3], at(owned[shard_ids[3]], 7).encode())
    result = process.store.commit([write(shard_id, at(owned[shard_id], 1)) for shard_id in shard_ids])
    assert result.fenced == {shard_ids[3]}
    assert result.committed == {*shard_ids} - {shard_ids[3]}
    stats = [real_place.client.get(real_place.paths.shard(shard_id))[1] for shard_id in shard_ids]
    assert len({stat.mzxid for stat in stats}) > 2


@pytest.mark.zookeeper
def test_commits_larger_than_one_request_take_effect(real_place: RealPlace) -> None:
    """Six checkpoints of 200 KB: more than the 1 MiB that the server takes at once."""
    shard_ids = [f"shardId-{number:012}" for number in range(6)]
    process = real_place.process("one")
    process.store.open(CREATED, START, shards_named(*shard_ids))
    random = Random(7)  # distances that nothing can pack
    far_apart = [
        SequenceNumber(number) for number in accumulate(random.getrandbits(140) for _ in range(9_000))
    ]
    holes = tuple(zip(far_apart[::2], far_apart[1::2], strict=True))
    owned = {shard_id: acquired(process, shard_id) for shard_id in shard_ids}
    checkpoints = {
        shard_id: Checkpoint(
            start=START.default, base=SequenceNumber(1), holes=holes, epoch=owned[shard_id].epoch
        )
        for shard_id in shard_ids
    }
    assert len(checkpoints[shard_ids[0]].encode()) > 190_000
    result = process.store.commit([write(*item) for item in checkpoints.items()])
    assert result.committed == set(shard_ids)
    assert process.store.load() == checkpoints


# -- reset


def test_a_reset_is_refused_while_a_consumer_lives(place: Place) -> None:
    process = begun(place, A)
    with pytest.raises(ConsumerAlive, match="one"):
        place.process("operator").store.reset({A: FRESH})
    process.close()
    place.process("operator-2").store.reset({A: FRESH})


def test_a_reset_replaces_progress_and_the_epoch_goes_on(place: Place) -> None:
    process = begun(place, A, B)
    assert acquired(process, A).epoch == 1
    process.close()
    operator = place.process("operator")
    moved = Checkpoint(start=Position.trim_horizon(), base=SequenceNumber(42))
    operator.store.reset({A: moved, C: moved})
    stored = operator.store.load()
    assert stored[A] == Checkpoint(start=moved.start, base=moved.base, epoch=2)
    assert stored[B] == FRESH
    assert stored[C].base == moved.base
    assert acquired(place.process("two"), A).epoch == 3


def test_a_reset_replaces_what_cannot_be_read(place: Place) -> None:
    process = begun(place, A)
    epoch = acquired(process, A).epoch
    process.close()
    place.put(A, b"{")
    operator = place.process("operator")
    operator.store.reset({A: FRESH})
    assert operator.store.load()[A].epoch > epoch
    assert operator.store.load()[A].start == START.default


def test_a_zombie_of_before_a_reset_is_fenced(place: Place) -> None:
    zombie = begun(place, A)
    old = acquired(zombie, A)
    beliefs = place.beliefs(zombie)
    zombie.coordinator.release([A])
    zombie.close()
    operator = place.process("operator")
    operator.store.reset({A: FRESH})
    zombie = place.process("one-again")
    place.put_back(zombie, beliefs)
    assert zombie.store.commit([write(A, at(old, 999))]).fenced == {A}
