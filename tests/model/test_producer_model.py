"""Whatever happens between a producer and Kinesis: tickets end once, counts add up, keys keep their order."""

import logging
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from botocore.exceptions import EndpointConnectionError
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_spout.kinesis.aggregated_record import UserRecord, take_apart
from kinesis_spout.kinesis.write.put_records import Entry
from kinesis_spout.model.errors import BufferFull, KinesisSpoutError
from kinesis_spout.producer import BatchTicket, FailedRecord, Ticket
from kinesis_spout.producer.sender import WorkToDo
from kinesis_spout.producer.spool import Spooled
from kinesis_spout.testing import InMemoryDeadLetterSink, ManualClock, SteppedProducer
from tests.support.kinesis.in_memory_client import client_error
from tests.support.kinesis.writable import THROTTLED, Sent, WritableKinesis

pytestmark = pytest.mark.no_second_run

LOST = EndpointConnectionError(endpoint_url="memory:")
RECORDS = 60


@pytest.fixture(autouse=True)
def _no_log() -> Iterator[None]:
    """Thousands of failures on purpose take longer to write down than to happen."""
    log = logging.getLogger("kinesis_spout")
    before, log.level = log.level, logging.CRITICAL
    yield
    log.level = before


class SpoolInMemory:
    """A spool whose content outlives its producers."""

    stream = None
    size_bytes = 0

    def __init__(self, content: dict[int, Entry]) -> None:
        self.content = content
        self._left = sorted(content)
        self.is_closed = False

    def append(self, *entries: Entry) -> int:
        first = max(self.content, default=0) + 1
        self.content |= dict(enumerate(entries, first))
        return first

    def confirm(self, numbers: Any) -> None:
        for number in numbers:
            del self.content[number]

    def recovered(self, limit: int) -> list[Spooled]:
        given_out, self._left = self._left[:limit], self._left[limit:]
        return [Spooled(number, self.content[number]) for number in given_out]

    def close(self) -> None:
        self.is_closed = True


@dataclass
class World:
    """A producer, a stream, and a course of events that a seed decides on."""

    chance: random.Random
    shares: dict[str, float]
    options: dict[str, Any]
    spool: SpoolInMemory | None = None
    sink: InMemoryDeadLetterSink | None = None
    clock: ManualClock = field(default_factory=ManualClock)
    kinesis: WritableKinesis = field(default_factory=lambda: WritableKinesis(s=2))
    tickets: list[Ticket] = field(default_factory=list)
    batches: dict[BatchTicket, list[tuple[bytes, str]]] = field(default_factory=dict)
    quiet: list[tuple[bytes, str]] = field(default_factory=list)
    """What was put without a ticket."""
    reported: list[FailedRecord] = field(default_factory=list)
    told: Counter[int] = field(default_factory=Counter)
    under_way: list[WorkToDo] = field(default_factory=list)
    refused: int = 0

    def __post_init__(self) -> None:
        self.kinesis.refuses = lambda *_: THROTTLED if self.happens("refused") else None
        self.kinesis.before_call = self._fail
        self.kinesis.after_call = self._lose
        self.producer = self.open()

    def open(self) -> SteppedProducer:
        return SteppedProducer(
            "s",
            client=self.kinesis.client,
            clock=self.clock,
            spool=self.spool,
            dead_letters=self.sink,
            on_failure=self._report,
            **self.options,
        )

    def happens(self, what: str) -> bool:
        return self.chance.random() < self.shares.get(what, 0.0)

    def _fail(self, *_: Any) -> None:
        if self.happens("failed"):
            raise client_error("InternalFailure", "PutRecords", status=500)

    def _lose(self) -> None:
        if self.happens("lost"):
            raise LOST

    def put(self, number: int, keys: int) -> None:
        """Put a record, or some together, or one without a ticket."""
        how = self.chance.choice(["one", "one", "many", "without"])
        count = self.chance.choice([1, 3, 20]) if how == "many" else 1
        if self.producer.counts().waiting + count > self.producer.config.max_buffered_records:
            self.do_all()  # who blocks waits for other threads
        records = [
            (str(100 * number + at).zfill(60).encode(), f"key-{self.chance.randrange(keys)}")
            for at in range(count)
        ]
        try:
            if how == "many":
                batch = self.producer.put_many(records)
                self.batches[batch] = records
                batch.add_done_callback(self._tell)
            elif how == "one":
                self.tickets.append(self.producer.put(*records[0]))
                self.tickets[-1].add_done_callback(self._tell)
            else:
                self.producer.send(*records[0])
                self.quiet += records
        except BufferFull:
            self.refused += count

    def _report(self, failed: FailedRecord) -> None:
        self.reported.append(failed)
        if self.happens("callback crashes"):
            raise RuntimeError("as told")

    def _tell(self, ticket: Ticket | BatchTicket) -> None:
        self.told[id(ticket)] += 1
        if self.happens("callback crashes"):
            raise RuntimeError("as told")

    def go_on(self) -> None:
        """Let some things happen, each as another thread may do it."""
        for _ in range(self.chance.randrange(3)):
            work = self.producer.next_work()
            if work is not None:
                self.under_way.append(work)
        if self.under_way and self.chance.random() < 0.5:
            self.producer.do(self.under_way.pop(self.chance.randrange(len(self.under_way))))
        if self.happens("resharded"):
            self.kinesis.reshard("s", self.chance.randint(1, 4))
        if self.sink is not None and self.happens("letters fail"):
            self.sink.fail_writes(1)
        self.clock.advance(self.chance.random() / 10)
        if self.chance.random() < 0.2:
            self.check_counts()

    def do_all(self) -> None:
        while self.under_way:
            self.producer.do(self.under_way.pop(self.chance.randrange(len(self.under_way))))

    def check_counts(self) -> None:
        counts = self.producer.counts()
        failed = Counter(
            [kind_of(ticket) for ticket in self.tickets if ticket.done() and ticket.exception(0)]
            + [type(error).__name__ for batch in self.batches for error in batch.failed.values()]
            + [type(failed.error).__name__ for failed in self.reported]
        )
        assert counts.refused == self.refused
        assert counts.put == len(self.accepted) + self.refused + counts.recovered
        assert counts.put == counts.sent + counts.failed + counts.dropped + counts.refused + counts.waiting
        if not counts.recovered:
            dropped = failed.pop("RecordDropped", 0)
            assert (counts.dropped, counts.failed) == (dropped, sum(failed.values()))
            if not self.quiet:
                puts: list[Ticket | BatchTicket] = [*self.tickets, *self.batches]
                assert counts.waiting == sum(put.left for put in puts)
                assert 0 <= counts.waiting_bytes <= sum(put.size_bytes for put in puts if put.left)

    @property
    def accepted(self) -> list[bytes]:
        together = [data for records in self.batches.values() for data, _ in records]
        return [*(ticket.data for ticket in self.tickets), *together, *(data for data, _ in self.quiet)]

    def on_stream(self) -> list[tuple[Sent, int | None, UserRecord]]:
        return [
            (sent, None if parts is None else at, part)
            for call in self.kinesis.calls
            for sent in call
            if sent.taken
            for parts in [take_apart(sent.data)]
            for at, part in enumerate(parts or (UserRecord(sent.key, sent.data),))
        ]


def kind_of(ticket: Ticket) -> str:
    error = ticket.exception(0)
    return "sent" if error is None else type(error).__name__


def check_all_ended(world: World) -> None:
    places = {
        (sent.shard, sent.sequence_number, sub): (part.partition_key, part.data)
        for sent, sub, part in world.on_stream()
    }
    letters = [] if world.sink is None else [letter.data for letter in world.sink.letters]
    for ticket in world.tickets:
        assert world.told[id(ticket)] == 1
        if ticket.exception(0) is None:
            placed = ticket.result(0)
            place = (placed.shard_id, placed.sequence_number, placed.sub_sequence_number)
            assert places[place] == (ticket.partition_key, ticket.data)
    there = Counter(places.values())
    for ticket in world.tickets:
        if kind_of(ticket) not in ("sent", "ProducerClosed") and not ticket.tries:
            assert not there[ticket.partition_key, ticket.data], (
                "what ended while it waited goes into no call"
            )
    failed = {report.data for report in world.reported}
    assert len(failed) == len(world.reported), "each once"
    for data, key in world.quiet:
        assert data in failed or there[key, data], "it is on the stream, or was reported"
    for batch, records in world.batches.items():
        assert world.told[id(batch)] == 1
        failures = batch.failures(0)
        for at, (data, key) in enumerate(records):
            assert at in failures or there[key, data]
    dead = world.producer.counts().dead_lettered
    assert dead <= len(letters)
    assert not world.producer.counts().waiting


def check_order(world: World) -> None:
    first_seen: dict[str, dict[int, None]] = defaultdict(dict)
    for _, _, part in world.on_stream():
        first_seen[part.partition_key][int(part.data)] = None
    for numbers in first_seen.values():
        assert list(numbers) == sorted(numbers)


shares = st.fixed_dictionaries(
    {
        "refused": st.sampled_from([0.0, 0.0, 0.3, 0.9, 1.0]),
        "failed": st.sampled_from([0.0, 0.0, 0.3, 1.0]),
        "lost": st.sampled_from([0.0, 0.0, 0.3]),
        "resharded": st.sampled_from([0.0, 0.05]),
        "callback crashes": st.sampled_from([0.0, 0.2]),
        "letters fail": st.sampled_from([0.0, 0.3]),
    }
)
options = st.fixed_dictionaries(
    {
        "order": st.sampled_from(["unordered", "key"]),
        "aggregation": st.booleans(),
        "aggregation_max_bytes": st.just(1_024),
        "max_records_per_call": st.integers(1, 8),
        "max_concurrent_calls": st.integers(1, 4),
        "max_buffered_records": st.sampled_from([3, 10, 40, 1_000]),
        "when_full": st.sampled_from(["block", "refuse", "drop_oldest"]),
        "block_timeout_seconds": st.sampled_from([0.5, 10.0]),
        "linger_seconds": st.sampled_from([0.0, 0.3]),
        "delivery_timeout_seconds": st.sampled_from([2.0, 60.0]),
    }
)


@given(
    seed=st.integers(0, 2**32),
    shares=shares,
    options=options,
    keys=st.integers(1, 12),
    has_dead_letters=st.booleans(),
    close_timeout=st.sampled_from([0.0, 5.0, 1_000.0]),
)
@settings(deadline=None)
def test_every_ticket_ends_once_the_counts_add_up_and_keys_keep_their_order(
    *,
    seed: int,
    shares: dict[str, float],
    options: dict[str, Any],
    keys: int,
    has_dead_letters: bool,
    close_timeout: float,
) -> None:
    sink = InMemoryDeadLetterSink() if has_dead_letters else None
    world = World(random.Random(seed), shares, options, sink=sink)
    for number in range(RECORDS):
        world.put(number, keys)
        world.go_on()
    if seed % 2:
        world.do_all()
    world.producer.close(close_timeout)
    world.check_counts()
    world.do_all()  # what other threads were at when it was closed
    world.check_counts()
    check_all_ended(world)
    if options["order"] == "key":
        check_order(world)
    is_smooth = not (shares["refused"] or shares["failed"] or shares["lost"])
    has_time = close_timeout and options["delivery_timeout_seconds"] > RECORDS / 10 and seed % 2
    if is_smooth and has_time:
        assert {type(error).__name__ for batch in world.batches for error in batch.failures(0).values()} <= {
            "RecordDropped"
        }
        assert {kind_of(ticket) for ticket in world.tickets} <= {"sent", "RecordDropped"}


Kill = Literal["kill", "close"]


@given(
    seed=st.integers(0, 2**32),
    shares=shares,
    options=options,
    has_dead_letters=st.booleans(),
    ends=st.lists(st.sampled_from(["kill", "close"]), min_size=1, max_size=3),
)
@settings(deadline=None)
def test_with_a_spool_what_is_on_no_stream_and_in_no_letter_is_put_by_a_later_producer(
    *, seed: int, shares: dict[str, float], options: dict[str, Any], has_dead_letters: bool, ends: list[Kill]
) -> None:
    if options["when_full"] == "drop_oldest":  # it drops recovered ones, too
        options |= {"when_full": "refuse"}
    content: dict[int, Entry] = {}
    sink = InMemoryDeadLetterSink() if has_dead_letters else None
    world = World(random.Random(seed), shares, options, sink=sink, spool=SpoolInMemory(content))
    accepted: set[bytes] = set()
    for life, end in enumerate(ends):
        for number in range(40):
            world.put(life * 40 + number, 5)
            world.go_on()
        if end == "close":
            world.producer.close(1.0)
            assert world.spool is not None
            assert world.spool.is_closed
        accepted |= set(world.accepted)
        world.tickets, world.batches, world.quiet, world.reported = [], {}, [], []
        world.under_way, world.refused = [], 0
        world.spool = SpoolInMemory(content)
        if life == len(ends) - 1:  # it has the time to put what all before it left
            world.options |= {"delivery_timeout_seconds": 3_600.0}
        world.producer = world.open()
    world.shares = {}
    for _ in range(10_000):
        if not (world.producer.step() or content):
            break
        world.clock.advance(0.01)
    assert not content
    world.producer.close()
    on_stream = {part.data for _, _, part in world.on_stream()}
    letters = set() if sink is None else {letter.data for letter in sink.letters}
    assert accepted <= on_stream | letters


def test_the_error_of_a_ticket_is_a_fresh_one_for_each_who_asks() -> None:
    world = World(random.Random(1), {"failed": 1.0}, {"delivery_timeout_seconds": 1.0})
    ticket = world.producer.put(b"1", "k")
    world.producer.flush()
    errors: list[KinesisSpoutError | None] = [ticket.exception(), ticket.exception()]
    assert errors[0] is not errors[1]
    assert str(errors[0]) == str(errors[1])
