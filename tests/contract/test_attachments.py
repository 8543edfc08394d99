"""The contract of attachments: what is stored in one transaction with the checkpoints, or not at all."""

import itertools
import logging

import pytest

from kinesis_spout.model.errors import CommitTooLarge, ProgressLost, StoreUnavailable
from kinesis_spout.ports import Attachment, CheckpointWrite, CommitResult
from kinesis_spout.testing import InMemoryZooKeeper, StoreFault
from kinesis_spout.zookeeper import ChunkLimits
from shard_state import Checkpoint, Position, SequenceNumber
from tests.support.core.shards import everywhere, shards_named
from tests.support.waiting import wait_until
from tests.support.zookeeper.places import Place, Process, RealPlace

pytestmark = pytest.mark.no_second_run

CREATED = 1_700_000_000.123
START = everywhere(Position.at_timestamp(1_700_000_100.5))
FRESH = Checkpoint(start=START.default, parents=())
A, B = "shardId-000000000000", "shardId-000000000001"
NAME = "orders-per-customer"


def begun(place: Place, member: str = "one", *shard_ids: str) -> Process:
    process: Process = place.process(member)
    process.store.open(CREATED, START, shards_named(*(shard_ids or (A, B))))
    process.coordinator.join()
    return process


def acquired(process: Process, shard_id: str) -> Checkpoint:
    checkpoint = process.coordinator.acquire(shard_id, FRESH)
    assert checkpoint is not None, f"{shard_id} is somebody else's"
    return checkpoint


def at(shard_id: str, checkpoint: Checkpoint, number: int) -> CheckpointWrite:
    progress = Checkpoint(start=checkpoint.start, base=SequenceNumber(number), epoch=checkpoint.epoch)
    return CheckpointWrite(shard_id=shard_id, checkpoint=progress)


def state(data: bytes) -> Attachment:
    return Attachment(name=NAME, data=data)


def outcome(result: CommitResult) -> tuple[set[str], set[str], bool]:
    return set(result.committed), set(result.fenced), result.attached


STORED = ({A, B}, set[str](), True)
REFUSED = (set[str](), {A, B}, False)


def ready(place: Place) -> tuple[Process, Checkpoint, Checkpoint]:
    """A process that owns both shards and has read that nothing is attached."""
    process = begun(place)
    first, second = acquired(process, A), acquired(process, B)
    assert process.store.attached(NAME) is None
    return process, first, second


def seen(place: Place, member: str = "witness") -> tuple[object, object, bytes | None]:
    """What is stored, as another process sees it."""
    store = begun(place, member).store
    stored = store.load()
    return stored[A].base, stored[B].base, store.attached(NAME)


def test_progress_and_attachment_are_stored_together_again_and_again(place: Place) -> None:
    process, first, second = ready(place)
    for number in range(1, 4):
        data = b"state %d" % number
        result = process.store.commit([at(A, first, number), at(B, second, number)], state(data))
        assert outcome(result) == STORED
        assert seen(place, f"witness-{number}") == (SequenceNumber(number), SequenceNumber(number), data)


def test_an_attachment_alone_is_stored_while_shards_are_owned(place: Place) -> None:
    process, _, _ = ready(place)
    assert outcome(process.store.commit([], state(b"ticked"))) == (set(), set(), True)
    assert process.store.attached(NAME) == b"ticked"


def test_an_attachment_without_a_shard_is_refused_because_nothing_fences_it(place: Place) -> None:
    process = begun(place)
    process.store.attached(NAME)
    assert outcome(process.store.commit([], state(b"ticked"))) == (set(), set(), False)
    assert process.store.attached(NAME) is None


def test_attachments_of_other_names_are_apart(place: Place) -> None:
    process, first, _ = ready(place)
    process.store.attached("other")
    process.store.commit([at(A, first, 1)], state(b"one"))
    process.store.commit([at(A, first, 2)], Attachment(name="other", data=b"two"))
    assert (process.store.attached(NAME), process.store.attached("other")) == (b"one", b"two")


def test_a_commit_without_attachment_leaves_it_as_it_is(place: Place) -> None:
    process, first, second = ready(place)
    process.store.commit([at(A, first, 1)], state(b"one"))
    assert process.store.commit([at(A, first, 2), at(B, second, 2)]).committed == {A, B}
    assert process.store.commit([at(B, second, 3)], state(b"three")).attached
    assert seen(place) == (SequenceNumber(2), SequenceNumber(3), b"three")


def test_a_fenced_shard_refuses_all_of_it(place: Place) -> None:
    process, first, second = ready(place)
    process.store.commit([at(A, first, 1), at(B, second, 1)], state(b"one"))
    place.put(B, at(B, second, 7).checkpoint.encode())  # by hand, past the fence
    result = process.store.commit([at(A, first, 2), at(B, second, 2)], state(b"two"))
    assert outcome(result) == REFUSED
    assert process.coordinator.take_lost() == {B}
    assert seen(place) == (SequenceNumber(1), SequenceNumber(7), b"one")


def test_a_shard_that_is_only_owned_and_not_written_refuses_all_of_it_too(place: Place) -> None:
    process, first, second = ready(place)
    place.put(B, at(B, second, 7).checkpoint.encode())
    result = process.store.commit([at(A, first, 1)], state(b"one"))
    assert outcome(result) == (set(), {A}, False)
    assert process.coordinator.take_lost() == {B}
    assert seen(place) == (FRESH.base, SequenceNumber(7), None)


def test_a_write_of_an_older_epoch_refuses_all_of_it(place: Place) -> None:
    process, first, second = ready(place)
    process.coordinator.release([B])
    acquired(process, B)
    result = process.store.commit([at(A, first, 1), at(B, second, 1)], state(b"one"))
    assert outcome(result) == REFUSED
    assert seen(place) == (FRESH.base, FRESH.base, None)


def test_a_zombie_stores_nothing_after_another_took_its_shards(place: Place) -> None:
    zombie, first, second = ready(place)
    beliefs = place.beliefs(zombie)
    place.expire(zombie)
    heir = begun(place, "two")
    heirs = acquired(heir, A), acquired(heir, B)
    heir.store.attached(NAME)
    place.put_back(zombie, beliefs)

    assert not zombie.store.commit([], state(b"of the dead")).attached, "nothing written is fenced too"
    place.put_back(zombie, beliefs)
    late = zombie.store.commit([at(A, first, 9), at(B, second, 9)], state(b"of the dead"))
    assert outcome(late) == REFUSED
    kept = heir.store.commit([at(A, heirs[0], 1), at(B, heirs[1], 1)], state(b"alive"))
    assert outcome(kept) == STORED
    assert seen(place) == (SequenceNumber(1), SequenceNumber(1), b"alive")


def test_a_zombie_stores_nothing_although_nobody_took_its_shards(place: Place) -> None:
    zombie, first, second = ready(place)
    beliefs = place.beliefs(zombie)
    place.expire(zombie)
    place.put_back(zombie, beliefs)
    late = zombie.store.commit([at(A, first, 9), at(B, second, 9)], state(b"of the dead"))
    assert outcome(late) == REFUSED


def test_an_attachment_that_somebody_else_wrote_since_is_not_replaced(place: Place) -> None:
    process, first, second = ready(place)
    process.store.commit([at(A, first, 1)], state(b"one"))
    place.put_attachment(NAME, b"of somebody else")
    result = process.store.commit([at(A, first, 2), at(B, second, 2)], state(b"two"))
    assert outcome(result) == REFUSED
    assert process.coordinator.take_lost() == frozenset(), "its shards are its own still"
    assert process.store.attached(NAME) == b"of somebody else"
    again = process.store.commit([at(A, first, 2), at(B, second, 2)], state(b"two"))
    assert outcome(again) == STORED, "reading entitles to write"


def test_an_attachment_made_by_somebody_else_since_is_not_replaced(place: Place) -> None:
    process, first, second = ready(place)
    place.put_attachment(NAME, b"of somebody else")
    result = process.store.commit([at(A, first, 1), at(B, second, 1)], state(b"one"))
    assert outcome(result) == REFUSED
    assert seen(place) == (FRESH.base, FRESH.base, b"of somebody else")


# -- lost answers


def test_a_commit_whose_answer_is_lost_is_found_to_have_taken_effect(place: Place) -> None:
    process, first, second = ready(place)
    for number in (1, 3):
        place.lose_next_answer(process)
        result = process.store.commit([at(A, first, number), at(B, second, number)], state(b"%d" % number))
        assert outcome(result) == STORED
        assert process.store.commit([at(A, first, number + 1)], state(b"%d" % (number + 1))).attached
    assert seen(place) == (SequenceNumber(4), SequenceNumber(3), b"4")


def test_a_commit_that_never_arrived_is_sent_again(place: Place) -> None:
    process, first, second = ready(place)
    place.lose_next_request(process)
    result = process.store.commit([at(A, first, 1), at(B, second, 1)], state(b"one"))
    assert outcome(result) == STORED
    place.lose_next_request(process)
    assert process.store.commit([], state(b"two")).attached
    assert seen(place) == (SequenceNumber(1), SequenceNumber(1), b"two")


@pytest.mark.zookeeper
@pytest.mark.parametrize("applied", [True, False], ids=["applied", "not applied"])
def test_a_commit_left_in_doubt_is_resolved_by_the_next(real_place: RealPlace, applied: bool) -> None:  # noqa: FBT001
    process = real_place.process("one")
    process.store.open(CREATED, START, shards_named(A))
    checkpoint = acquired(process, A)
    process.store.attached(NAME)
    # As a commit leaves it that ended before it could read again.
    transaction = process.session.client.transaction()
    process.store._attachments.add(transaction, state(b"one"))
    process.store._ownerships.sending({A: at(A, checkpoint, 1).checkpoint.encode()})
    if applied:
        real_place.put(A, at(A, checkpoint, 1).checkpoint.encode())
        real_place.put_attachment(NAME, b"one")
    result = process.store.commit([at(A, checkpoint, 2)], state(b"two"))
    assert outcome(result) == ({A}, set(), True)
    assert process.store.attached(NAME) == b"two"


@pytest.mark.zookeeper
def test_without_connection_it_is_unavailable_and_is_repeated_after_reading_again(
    real_place: RealPlace,
) -> None:
    process = real_place.process("one", session_timeout_seconds=4.0)
    process.store.open(CREATED, START, shards_named(A))
    checkpoint = acquired(process, A)
    process.store.attached(NAME)
    real_place.proxy(process).close_door()
    wait_until(lambda: not process.session.client.connected, "the client notices")
    with pytest.raises(StoreUnavailable):
        process.store.commit([at(A, checkpoint, 1)], state(b"one"))
    real_place.proxy(process).open_door()
    again = acquired(process, A)
    assert process.store.attached(NAME) is None
    assert process.store.commit([at(A, again, 1)], state(b"one")).attached


def test_what_is_unavailable_may_be_repeated_in_memory() -> None:
    zookeeper = InMemoryZooKeeper()
    process = zookeeper.process("one")
    process.store.open(CREATED, START, shards_named(A))
    checkpoint = acquired(process, A)
    process.store.attached(NAME)
    zookeeper.fail_next(StoreFault.UNAVAILABLE)
    with pytest.raises(StoreUnavailable):
        process.store.commit([at(A, checkpoint, 1)], state(b"one"))
    assert process.store.commit([at(A, checkpoint, 1)], state(b"one")).attached


# -- sizes


def test_what_is_too_large_for_one_transaction_is_refused_and_nothing_is_stored(place: Place) -> None:
    process, first, second = ready(place)
    too_large = state(bytes(ChunkLimits().max_indivisible_bytes))
    with pytest.raises(CommitTooLarge, match="983,040 bytes") as refused:
        process.store.commit([at(A, first, 1), at(B, second, 1)], too_large)
    assert not refused.value.retriable
    assert seen(place) == (FRESH.base, FRESH.base, None)


def test_a_large_attachment_with_many_shards_is_stored_in_one_transaction(place: Place) -> None:
    shard_ids = [f"shardId-{number:012}" for number in range(1000)]
    process = begun(place, "one", *shard_ids)
    owned = {shard_id: acquired(process, shard_id) for shard_id in shard_ids}
    process.store.attached(NAME)
    large = bytes(itertools.islice(itertools.cycle(range(1, 200)), 400_000))
    result = process.store.commit([at(shard_id, owned[shard_id], 1) for shard_id in shard_ids], state(large))
    assert outcome(result) == (set(shard_ids), set(), True)
    if isinstance(place, RealPlace):
        nodes = [place.paths.attachment(NAME), *map(place.paths.shard, shard_ids)]
        assert len({place.client.get(node)[1].mzxid for node in nodes}) == 1, "expected one transaction id"


# -- removal, and what went before


def test_a_reset_removes_attachments_and_says_so(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    process, first, _ = ready(place)
    process.store.commit([at(A, first, 1)], state(b"one"))
    process.close()
    caplog.set_level(logging.WARNING)
    place.process("operator").store.reset({A: FRESH})
    assert seen(place) == (FRESH.base, FRESH.base, None)
    if isinstance(place, RealPlace):
        assert f"{NAME} is removed" in caplog.text


def test_a_deployment_that_begins_again_removes_attachments(place: Place) -> None:
    process, first, _ = ready(place)
    process.store.commit([at(A, first, 1)], state(b"one"))
    process.close()
    again = place.process("again")
    again.store.open(CREATED, START, shards_named(A, B))
    assert again.store.begin_again("v2", everywhere(Position.trim_horizon()), shards_named(A, B)) == START
    assert again.store.attached(NAME) is None
    checkpoint = acquired(again, A)
    assert again.store.commit([at(A, checkpoint, 1)], state(b"anew")).attached


def test_who_read_before_a_reset_cannot_store_after_it(place: Place) -> None:
    zombie, first, second = ready(place)
    zombie.store.commit([at(A, first, 1)], state(b"one"))
    beliefs = place.beliefs(zombie)
    place.expire(zombie)
    place.remove_member("one") if isinstance(place, RealPlace) else None
    place.process("operator").store.reset({A: FRESH, B: FRESH})
    place.put_back(zombie, beliefs)
    assert outcome(zombie.store.commit([at(A, first, 2), at(B, second, 2)], state(b"two"))) == REFUSED
    assert zombie.store.attached(NAME) is None


def test_to_forget_the_application_removes_attachments(place: Place) -> None:
    process, first, _ = ready(place)
    process.store.commit([at(A, first, 1)], state(b"one"))
    process.close()
    place.process("operator").store.forget()
    assert seen(place) == (FRESH.base, FRESH.base, None)


def test_progress_that_is_gone_is_no_empty_attachment(place: Place) -> None:
    process, first, _ = ready(place)
    process.store.commit([at(A, first, 1)], state(b"one"))
    place.lose_data()
    with pytest.raises(ProgressLost):
        process.store.attached(NAME)


@pytest.mark.zookeeper
def test_an_application_from_before_there_were_attachments_goes_on(real_place: RealPlace) -> None:
    begun(real_place).close()
    real_place.client.delete(real_place.paths.attached)
    process = begun(real_place, "two")
    checkpoint = acquired(process, A)
    assert process.store.attached(NAME) is None
    assert process.store.commit([at(A, checkpoint, 1)], state(b"one")).attached
