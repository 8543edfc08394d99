"""What the consumer's threads, the door and the world outside may do to each other."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from kinesis_spout.consumer import consumer, dead_lettering
from kinesis_spout.consumer.owning import commits
from kinesis_spout.model.errors import DeadLetterError, StoreUnavailable
from kinesis_spout.model.record import DeadLetter
from kinesis_spout.plain.record_spout import RecordSpout
from kinesis_spout.ports import Attachment, CheckpointStore, CheckpointWrite, CommitResult
from kinesis_spout.testing import InMemoryDeadLetterSink, InMemoryShardLister, InMemoryStream, ManualClock
from shard_state import SHARD_START, Checkpoint, Shard
from tests.support.consumer.world import FIRST, NEVER, World, opened, values_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.no_second_run


class GatedSink(InMemoryDeadLetterSink):
    """A sink whose every write waits until a test lets it pass."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0
        self.passes = threading.Semaphore(0)

    def write(self, letters: Sequence[DeadLetter]) -> None:
        self.begun += 1
        assert self.passes.acquire(timeout=60), "no test lets the write pass"
        super().write(letters)


class StoreThatLags:
    """A store whose first list still shows every shard as it was at its beginning."""

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store
        self._lists = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def load(self) -> Mapping[str, Checkpoint]:
        self._lists += 1
        stored = self._store.load()
        if self._lists > 1:
            return stored
        return {
            shard_id: replace(checkpoint, base=SHARD_START)
            for shard_id, checkpoint in stored.items()
            if shard_id == FIRST
        }


class StoreThatFails:
    """A store whose commits fail, as when the connection drops, for as long as a test says."""

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store
        self.failures = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def commit(self, writes: Sequence[CheckpointWrite], attachment: Attachment | None = None) -> CommitResult:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("the connection dropped")
        return self._store.commit(writes, attachment)


def test_a_checkpoint_names_the_member_that_owns_its_shard(world: World) -> None:
    spout = world.spout()
    (message_id,) = world.put("one")
    world.take(spout, 1)
    spout.ack(f"{message_id}#1.1")
    world.until_stored(message_id)
    owner = world.zookeeper.owners[FIRST].member
    assert (owner, world.stored().app_instance) == ("member-1", "member-1")


class ClockThatWatchesTheLock(ManualClock):
    """Counts the moments in which a commit has let go of the consumer's lock."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = 0

    def sleep(self, seconds: float) -> None:
        self.let_go += seconds == commits._LET_GO_SECONDS
        super().sleep(seconds)


def test_a_commit_of_many_shards_lets_others_have_the_lock_between_some_and_some() -> None:
    world = World(shards=40)
    world.clock = clock = ClockThatWatchesTheLock()
    spout = world.spout(commit_interval_seconds=NEVER)
    shards = [shard.shard_id for shard in world.stream.list_shards()]
    for shard_id in shards:
        world.put_in(shard_id, "a")
    for emitted in world.take(spout, len(shards)):
        spout.ack(emitted.message_id)
    assert clock.let_go == 0
    spout.close()
    assert clock.let_go == 2
    stored = world.zookeeper.process("onlooker").store.load()
    assert SHARD_START not in {stored[shard_id].base for shard_id in shards}
    world.close()


def test_a_letter_under_way_says_nothing_of_the_next_ownership_of_its_shard(world: World) -> None:
    """Its shard is lost and taken again meanwhile, and its record given up again: it has used up its attempts."""
    world.dead_letters = sink = GatedSink()
    spout = world.spout(retry_limit=0)
    (message_id,) = world.put("one")
    world.take(spout, 1)
    spout.fail(f"{message_id}#1.1", "at first")
    world.until(lambda: sink.begun == 1, "the first letter is on its way")
    world.until(lambda: bool(world.stored().attempts), "the attempt is stored")
    world.zookeeper.expire("member-1")

    def given_up_again() -> bool:
        assert spout.next_tuple() is None
        return any(status.epoch == 2 and status.exhausted == 1 for status in spout.shards())

    world.until(given_up_again, "the record is given up again")
    sink.passes.release()

    world.until(lambda: sink.begun == 2, "the second letter is on its way")
    assert [letter.error for letter in sink.letters] == ["at first"]
    assert spout.shards()[0].exhausted == 1
    sink.passes.release()
    world.until_stored(message_id)
    assert [letter.error.partition(",")[0] for letter in sink.letters] == [
        "at first",
        "the process ended while it handled this record",
    ]


@pytest.mark.parametrize("begun_before", [True, False], ids=["under way", "not yet begun"])
def test_closing_waits_for_a_sink_that_hangs_but_not_for_ever(
    world: World, monkeypatch: pytest.MonkeyPatch, *, begun_before: bool
) -> None:
    monkeypatch.setattr(dead_lettering, "LAST_LETTERS_SECONDS", 0.2)
    world.dead_letters = sink = GatedSink()
    spout = world.spout(retry_limit=0, commit_interval_seconds=NEVER)
    one, two = world.put("one", "two")
    world.take(spout, 2)
    spout.ack(f"{one}#1.1")
    if not begun_before:
        _rest_letter_writer(spout)
    spout.fail(f"{two}#1.1")
    if begun_before:
        world.until(lambda: sink.begun == 1, "the letter is on its way")
    errors: list[DeadLetterError] = []

    def close() -> None:
        with pytest.raises(DeadLetterError, match=r"within 0\.2 s") as raised:
            spout.close()
        errors.append(raised.value)

    closing = threading.Thread(target=close, daemon=True)
    closing.start()
    wait_until(lambda: not closing.is_alive(), "the spout is closed")

    assert errors
    assert f"{FIRST}:{world.stored().base}" == one
    assert world.zookeeper.owners == {}
    sink.passes.release(2)
    world.dead_letters = InMemoryDeadLetterSink()
    assert values_of(world.settle(world.spout(), 1)) == ["two"]


def _spout_with_one_acked(world: World) -> tuple[RecordSpout, StoreThatFails, str]:
    ports = world.ports()
    store = StoreThatFails(ports.store)
    spout = RecordSpout(
        ports=replace(ports, store=store),  # type: ignore[arg-type]
        stream="orders",
        app="billing",
        initial_position="trim_horizon",
        commit_interval_seconds=NEVER,
    ).open()
    (message_id,) = world.put("one")
    world.take(spout, 1)
    spout.ack(f"{message_id}#1.1")
    return spout, store, message_id


def test_the_last_commit_is_tried_again_when_the_connection_drops_while_closing(world: World) -> None:
    spout, store, message_id = _spout_with_one_acked(world)
    store.failures = 3
    spout.close()

    assert f"{FIRST}:{world.stored().base}" == message_id
    assert world.zookeeper.owners == {}


def test_closing_does_not_wait_for_ever_for_a_store_that_is_gone(world: World) -> None:
    spout, store, _ = _spout_with_one_acked(world)
    store.failures = 1_000
    begun = world.clock.monotonic()
    with pytest.raises(StoreUnavailable, match="dropped"):
        spout.close()

    assert store.failures > 900
    assert world.clock.monotonic() - begun <= consumer.LAST_COMMIT_SECONDS
    store.failures = 0
    assert values_of(world.settle(world.spout(), 1)) == ["one"]


def test_a_shard_that_was_over_when_it_was_taken_is_not_kept_and_its_children_are_read_at_once(
    world: World,
) -> None:
    """Its last owner stored the end after the stored progress was listed."""
    first = world.spout()
    world.put("parent")
    world.stream.split(FIRST)
    world.settle(first, 1)
    world.until(lambda: world.stored().is_shard_end, "the parent is over")
    first.close()
    world.put("child")

    ports = world.ports()
    lagging = replace(ports, store=StoreThatLags(ports.store))  # type: ignore[arg-type]
    spout = RecordSpout(
        ports=lagging,
        scheme="text",
        stream="orders",
        app="billing",
        initial_position="trim_horizon",
        shard_list_interval_seconds=NEVER,
    ).open()
    try:
        assert values_of(world.take(spout, 1)) == ["child"]
        assert FIRST not in world.zookeeper.owners
    finally:
        spout.close()


def test_a_sink_that_cannot_be_written_is_noticed_at_the_start_and_nothing_is_begun(world: World) -> None:
    world.dead_letters.is_writable = False
    with pytest.raises(DeadLetterError, match="expected to be able to write"):
        world.spout()
    assert world.zookeeper.owners == {}
    world.dead_letters.is_writable = True
    world.put("one")
    assert values_of(world.settle(world.spout(), 1)) == ["one"]


class GatedLister(InMemoryShardLister):
    """A lister each of whose lists, made at once, arrives when a test lets it pass."""

    def __init__(self, stream: InMemoryStream) -> None:
        super().__init__(stream)
        self.gated = False
        self.begun = 0
        self.passes = threading.Semaphore(0)

    def list_shards(self) -> list[Shard]:
        listed = super().list_shards()
        if self.gated:
            self.begun += 1
            assert self.passes.acquire(timeout=60), "no test lets the list pass"
        return listed


class StoreThatFences(StoreThatFails):
    """A store that refuses the next commit: a newer owner, says the first answer of ZooKeeper."""

    fences_next = False

    def commit(self, writes: Sequence[CheckpointWrite], attachment: Attachment | None = None) -> CommitResult:
        if self.fences_next:
            self.fences_next = False
            return CommitResult(fenced=frozenset(write.shard_id for write in writes))
        return super().commit(writes, attachment)


def test_what_was_fenced_is_dropped_with_its_letters_and_taken_again_from_what_is_stored(
    world: World,
) -> None:
    world.dead_letters = sink = GatedSink()
    ports = world.ports()
    store = StoreThatFences(ports.store)
    spout = RecordSpout(
        ports=replace(ports, store=store),  # type: ignore[arg-type]
        scheme="text",
        stream="orders",
        app="billing",
        initial_position="trim_horizon",
        retry_limit=0,
        commit_interval_seconds=0.02,
        shard_list_interval_seconds=NEVER,
    ).open()
    one, two = world.put("one", "two")
    world.take(spout, 2)
    spout.fail(f"{two}#1.1")
    started, _ = opened(spout)
    store.fences_next = True
    spout.ack(f"{one}#1.1")

    def epoch() -> int:
        state = started.manager.shard(FIRST)
        return 0 if state is None else state.epoch

    world.until(lambda: epoch() == 2, "the shard was dropped and acquired anew")
    assert not started.letters
    assert not spout.ack(f"{two}#1.1"), "the delivery was of an ownership that ended"
    sink.passes.release(10)
    assert values_of(world.settle(spout, 2)) == ["one", "two"]
    spout.close()


def test_the_thread_that_writes_letters_begins_with_the_first_one(world: World) -> None:
    spout = world.spout(retry_limit=0)
    one, two = world.put("one", "two")
    world.take(spout, 2)
    started, _ = opened(spout)

    def letter_writer() -> threading.Thread | None:
        with started.lock:  # who takes it has what was failed decided upon
            return started._letter_writer

    assert letter_writer() is None
    spout.fail(f"{one}#1.1")
    first = letter_writer()
    assert first is not None
    spout.fail(f"{two}#1.1")
    assert letter_writer() is first
    world.until_stored(two)


def _rest_letter_writer(spout: RecordSpout) -> None:
    """Let the closing thread find the letter unwritten, as it does when it came a moment ago."""
    started, _ = opened(spout)
    started._chores.to_dead_letter.until = NEVER
