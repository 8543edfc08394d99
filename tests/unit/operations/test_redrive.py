"""Redriven letters are on their stream again before they are marked; each letter has one outcome."""

import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.dead_letters.kinesis_stream import KinesisStreamSink
from kinesis_spout.kinesis.retry_policy import CallRetryPolicy
from kinesis_spout.model.errors import DeadLetterError, StoreUnavailable
from kinesis_spout.model.record import DeadLetter, LetterId, LetterOutcome
from kinesis_spout.operations.audit import Operator, read_audit
from kinesis_spout.operations.dead_letters import (
    Choice,
    ChosenLetters,
    chosen_letters,
    dismiss,
    kind_of,
    put_back,
)
from kinesis_spout.operations.errors import LettersHeld
from kinesis_spout.ports import DeadLetterSink
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.testing import InMemoryDeadLetterSink
from tests.support.consumer.letters import letter as plain_letter
from tests.support.consumer.s3_server import a_session, kinesis_with_streams, s3_endpoint
from tests.unit.cli.fake_world import FakeWorld

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient


def letter(number: int, **changes: Any) -> DeadLetter:
    """Tell the letters apart by their data, which is all of them that a stream gets."""
    return plain_letter(number, data=b"%d" % number, **changes)


@pytest.fixture
def client() -> "Iterator[KinesisClient]":
    with kinesis_with_streams("orders", "returns", "dead") as client:
        yield client


def on_stream(stream: str, *, shard: int = 0) -> list[tuple[str, bytes]]:
    client = a_session().client("kinesis", endpoint_url=s3_endpoint())
    iterator = client.get_shard_iterator(
        StreamName=stream, ShardId=f"shardId-{shard:012}", ShardIteratorType="TRIM_HORIZON"
    )
    records = client.get_records(ShardIterator=iterator["ShardIterator"])["Records"]
    client.close()
    return [(record["PartitionKey"], record["Data"]) for record in records]


def filled(*letters: DeadLetter) -> InMemoryDeadLetterSink:
    sink = InMemoryDeadLetterSink()
    sink.write(letters)
    return sink


def chosen(sink: DeadLetterSink, *message_ids: str) -> ChosenLetters:
    return ChosenLetters(sink, Choice(message_ids=frozenset(message_ids)))


def redrive_all(sink: DeadLetterSink, client: "KinesisClient") -> int:
    return chosen(sink).redrive(client)


def test_all_letters_go_back_to_their_own_streams_with_their_keys(client: "KinesisClient") -> None:
    sink = filled(letter(1, partition_key="a"), letter(2, stream="returns"), letter(3, partition_key="b"))
    assert redrive_all(sink, client) == 3
    assert on_stream("orders") == [("a", b"1"), ("b", b"3")]
    assert on_stream("returns") == [("k", b"2")]
    assert list(sink.read()) == []
    assert redrive_all(sink, client) == 0


def test_a_letter_without_a_key_goes_by_its_sequence_number(client: "KinesisClient") -> None:
    redrive_all(filled(letter(7, partition_key=None)), client)
    assert on_stream("orders") == [("7", b"7")]


def test_a_letter_goes_back_with_its_explicit_hash_key(client: "KinesisClient") -> None:
    client.create_stream(StreamName="wide", ShardCount=2)
    last = str(2**127 + 1)
    letters = [letter(number, stream="wide", explicit_hash_key=key) for number, key in enumerate(("0", last))]
    assert redrive_all(filled(*letters), client) == 2
    assert on_stream("wide") == [("k", b"0")]
    assert on_stream("wide", shard=1) == [("k", b"1")]


@pytest.mark.parametrize("hash_key", ["", "k", "-1", "1.5", "٣", str(2**128), "9" * 5000])
def test_an_explicit_hash_key_that_kinesis_refuses_keeps_no_letter_back(
    client: "KinesisClient", hash_key: str
) -> None:
    redrive_all(filled(letter(1, explicit_hash_key=hash_key), letter(2)), client)
    assert on_stream("orders") == [("k", b"1"), ("k", b"2")]


def test_letters_are_chosen_by_message_id_and_the_unknown_are_reported(client: "KinesisClient") -> None:
    sink = filled(letter(1), letter(2))
    absent = "shardId-000000000000:9"
    letters = chosen(sink, letter(2).message_id, absent)
    assert letters.missing == [absent]
    assert letters.redrive(client) == 1
    assert on_stream("orders") == [("k", b"2")]
    assert list(sink.read()) == [letter(1)]


def test_copies_of_a_letter_go_back_once(client: "KinesisClient") -> None:
    sink = filled(letter(1), letter(1), letter(1, died_at=2.5))
    assert redrive_all(sink, client) == 2
    assert list(sink.read()) == []


class FailingAtMarks(InMemoryDeadLetterSink):
    def __init__(self, good_marks: int) -> None:
        super().__init__()
        self.good_marks = good_marks

    def mark(self, letter_ids: Collection[LetterId], outcome: LetterOutcome) -> None:
        if self.good_marks == 0:
            raise DeadLetterError("no mark")
        self.good_marks -= 1
        super().mark(letter_ids, outcome)


def test_letters_are_put_before_they_are_marked_batch_by_batch(client: "KinesisClient") -> None:
    sink = FailingAtMarks(good_marks=1)
    sink.write([letter(number) for number in range(1_100)])
    with pytest.raises(DeadLetterError):
        redrive_all(sink, client)
    assert len(on_stream("orders")) == 1_000  # the second batch was put, and not marked
    assert len(list(sink.read())) == 600
    sink.good_marks = 2
    assert redrive_all(sink, client) == 600
    assert len(on_stream("orders")) == 1_600


def test_nothing_is_marked_that_was_not_put(client: "KinesisClient") -> None:
    sink = filled(letter(1, stream="gone"))
    with pytest.raises(DeadLetterError, match="PutRecords on gone"):
        redrive_all(sink, client)
    assert list(sink.read()) == [letter(1, stream="gone")]


def test_letters_of_a_stream_are_redriven_one_by_one_and_each_once(client: "KinesisClient") -> None:
    sink = KinesisStreamSink(client, "dead", retry_policy=CallRetryPolicy())
    sink.write([letter(1), letter(2)])
    assert chosen(sink, letter(1).message_id).redrive(client) == 1
    assert redrive_all(sink, client) == 1
    assert redrive_all(sink, client) == 0
    assert on_stream("orders") == [("k", b"1"), ("k", b"2")]
    assert list(sink.read()) == []


def test_a_letter_of_a_user_record_is_redriven_alone_under_its_own_key(client: "KinesisClient") -> None:
    sink = filled(
        letter(1, sequence_number="7:0", partition_key="a"),
        letter(2, sequence_number="7:1", partition_key="b"),
    )
    (_, second) = sink.read()

    assert second.message_id.endswith(":7:1")
    assert chosen(sink, second.message_id).redrive(client) == 1
    assert on_stream(second.stream) == [("b", b"2")]
    assert [each.sequence_number for each in sink.read()] == ["7:0"]


def test_no_more_letters_are_put_in_a_second_than_the_rate_allows(client: "KinesisClient") -> None:
    sink = filled(*(letter(number) for number in range(5)))
    batches: list[int] = []
    started = time.monotonic()
    assert chosen(sink).redrive(client, rate=20, done=batches.append) == 5
    assert sum(batches) == 5
    sink.write([letter(number) for number in range(10, 16)])
    assert chosen(sink).redrive(client, rate=2, stop=SetAfter(2), done=batches.append) == 4
    assert time.monotonic() - started >= 1.0
    assert batches[1:] == [2, 2]


class SetAfter(threading.Event):
    """An event that is set after so many looks."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._looks = looks

    def wait(self, timeout: float | None = None) -> bool:
        if self._looks == 0:
            return True
        self._looks -= 1
        return super().wait(timeout)


def test_a_redrive_that_is_stopped_marks_what_it_put_and_leaves_the_rest(client: "KinesisClient") -> None:
    sink = filled(*(letter(number) for number in range(600)))
    stop = threading.Event()
    assert chosen(sink).redrive(client, stop=stop, done=lambda _count: stop.set()) == 500
    assert len(on_stream("orders")) == 500
    assert len(list(sink.read())) == 100


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("ValueError: order 13: negative amount", "ValueError"),
        ("my.module.LookupDown: gone", "my.module.LookupDown"),
        ("KeyError", "KeyError"),
        ("never had an aircraft", "rejected"),
        ("", "rejected"),
    ],
)
def test_the_kind_of_a_letter_is_the_exception_or_the_reason(error: str, kind: str) -> None:
    assert kind_of(letter(1, error=error, reason="rejected")) == kind


EVERYTHING = Choice()


class Operators:
    """Where each has a session of its own with one ZooKeeper."""

    def __init__(self, client: "KinesisClient") -> None:
        self.world = FakeWorld()
        self.world.puts = client  # type: ignore[assignment]
        self.world.sink = filled(*(letter(number) for number in range(1, 1_001)))
        self.config = SpoutConfig.load(stream="orders", app="billing")

    def redrive(
        self,
        who: str,
        done: Callable[[int], object] = lambda _count: None,
        *,
        dead_letters: str | None = None,
    ) -> int:
        config = SpoutConfig.load(stream="orders", app="billing", dead_letters=dead_letters)
        with chosen_letters(self.world, config, Choice()) as chosen:
            return put_back(self.world, config, chosen, force=False, by=Operator(who=who), done=done)

    def dismiss(self, who: str, choice: Choice = EVERYTHING, *, why: str = "test data") -> int:
        with chosen_letters(self.world, self.config, choice) as chosen:
            return dismiss(self.world, self.config, chosen, Operator(who=who, why=why))

    @property
    def marks(self) -> dict[LetterId, LetterOutcome]:
        assert isinstance(self.world.sink, InMemoryDeadLetterSink)
        return self.world.sink.marks

    @property
    def left(self) -> int:
        return len(list(self.world.sink.read()))

    @property
    def audit(self) -> list[tuple[str, str, str, str]]:
        return [(each.who, each.what, each.of, each.why) for each in read_audit(self.world, self.config)]


@pytest.fixture
def operators(client: "KinesisClient") -> Operators:
    return Operators(client)


@pytest.mark.parametrize(
    "places",
    [
        (None, None),
        ("letters", str(Path("letters").absolute())),
        ("letters/", Path("letters").absolute().as_uri()),
    ],
)
def test_of_two_redrives_of_the_same_letters_the_second_is_refused_and_names_the_first(
    operators: Operators, places: tuple[str | None, str | None]
) -> None:
    one, two = places
    refused: list[str] = []

    def meet(_count: int) -> None:
        if refused:
            return  # nothing is left for a second one
        with pytest.raises(LettersHeld) as error:
            operators.redrive("two@there", dead_letters=two)
        refused.append(str(error.value))

    assert operators.redrive("one@here", done=meet, dead_letters=one) == 1_000
    assert "got a redrive by one@here (command line, since " in refused[0]
    assert operators.redrive("two@there") == 0
    assert len({data for _, data in on_stream("orders")}) == len(on_stream("orders")) == 1_000


def test_letters_that_another_redrive_put_after_they_were_chosen_are_not_put_again(
    operators: Operators,
) -> None:
    with chosen_letters(operators.world, operators.config, Choice()) as chosen:
        operators.redrive("one@here")
        assert put_back(operators.world, operators.config, chosen, force=False) == 0
    assert len(on_stream("orders")) == 1_000


def test_a_redrive_whose_session_was_lost_puts_no_other_batch(operators: Operators) -> None:
    with pytest.raises(StoreUnavailable, match="begin again to go on"):
        operators.redrive("one@here", done=lambda _count: operators.world.zookeeper.expire("operator-1"))
    assert len(on_stream("orders")) == 500
    assert operators.redrive("one@here") == 500


def test_one_session_keeps_others_away_and_writes_the_audit(operators: Operators) -> None:
    operators.world.consumer()
    assert operators.redrive("one@here") == 1_000
    assert operators.world.opened.count("progress") == 1
    (entry,) = read_audit(operators.world, operators.config)
    assert (entry.who, entry.what, entry.of) == ("one@here", "redrive", "1,000 of 1,000 letters: all")


def test_without_zookeeper_letters_are_redriven_by_force_only(operators: Operators) -> None:
    operators.world.zookeeper.set_available(False)
    with chosen_letters(operators.world, operators.config, Choice()) as chosen:
        with pytest.raises(StoreUnavailable):
            put_back(operators.world, operators.config, chosen, force=False)
        assert on_stream("orders") == []
        assert put_back(operators.world, operators.config, chosen, force=True) == 1_000


def test_dismissed_letters_are_listed_no_more_and_the_audit_says_who_what_and_why(
    operators: Operators,
) -> None:
    operators.world.consumer()
    some = frozenset(letter(number).message_id for number in (1, 2))
    assert operators.dismiss("one@here", Choice(message_ids=some)) == 2
    assert operators.left == 998
    assert operators.dismiss("two@there", why="all of them are broken") == 998
    assert operators.left == 0
    assert set(operators.marks.values()) == {LetterOutcome.DISMISSED}
    assert on_stream("orders") == []
    assert operators.audit == [
        ("one@here", "dismiss", f"2 of 2 letters: {', '.join(sorted(some))}", "test data"),
        ("two@there", "dismiss", "998 of 998 letters: all", "all of them are broken"),
    ]


def test_letters_that_are_being_redriven_cannot_be_dismissed(operators: Operators) -> None:
    refused: list[str] = []

    def meet(_count: int) -> None:
        with pytest.raises(LettersHeld, match="got a redrive by one@here") as error:
            operators.dismiss("two@there", Choice(message_ids=frozenset({letter(1_000).message_id})))
        refused.append(str(error.value))
        raise InterruptedError

    with pytest.raises(InterruptedError):
        operators.redrive("one@here", done=meet)
    assert len(refused) == 1
    assert operators.dismiss("two@there") == 500
    assert set(operators.marks.values()) == set(LetterOutcome)


def test_letters_that_are_being_dismissed_cannot_be_redriven(operators: Operators) -> None:
    class Meeting(InMemoryDeadLetterSink):
        def mark(self, letter_ids: Collection[LetterId], outcome: LetterOutcome) -> None:
            with pytest.raises(LettersHeld, match="got a dismissal by one@here"):
                operators.redrive("two@there")
            super().mark(letter_ids, outcome)

    operators.world.sink = Meeting()
    operators.world.sink.write([letter(1)])
    assert operators.dismiss("one@here") == 1
    assert operators.redrive("two@there") == 0
    assert on_stream("orders") == []


def test_letters_that_were_redriven_or_dismissed_after_they_were_chosen_keep_that_outcome(
    operators: Operators,
) -> None:
    with chosen_letters(operators.world, operators.config, Choice()) as chosen:
        some = frozenset({letter(7).message_id})
        assert operators.dismiss("one@here", Choice(message_ids=some)) == 1
        assert put_back(operators.world, operators.config, chosen, force=False) == 999
        assert dismiss(operators.world, operators.config, chosen, Operator(who="two", why="old")) == 0
    assert operators.marks[letter(7).letter_id] is LetterOutcome.DISMISSED
    assert b"7" not in {data for _, data in on_stream("orders")}


def test_letters_that_come_after_they_were_chosen_are_not_dismissed(operators: Operators) -> None:
    with chosen_letters(operators.world, operators.config, Choice()) as chosen:
        operators.world.sink.write([letter(5_000)])
        assert dismiss(operators.world, operators.config, chosen, Operator(who="one", why="old")) == 1_000
    assert list(operators.world.sink.read()) == [letter(5_000)]


def test_a_dismissal_that_broke_off_is_in_the_audit_and_the_next_one_dismisses_the_rest(
    operators: Operators,
) -> None:
    class Breaking(InMemoryDeadLetterSink):
        """Marks two, then its place fails."""

        is_whole = False

        def mark(self, letter_ids: Collection[LetterId], outcome: LetterOutcome) -> None:
            super().mark(letter_ids if self.is_whole else list(letter_ids)[:2], outcome)
            if not self.is_whole:
                self.is_whole = True
                raise DeadLetterError("the disk is full")

    operators.world.consumer()
    operators.world.sink = Breaking()
    operators.world.sink.write([letter(number) for number in range(5)])
    with pytest.raises(DeadLetterError, match="the disk is full"):
        operators.dismiss("one@here")
    assert operators.dismiss("one@here") == 3
    assert [of for _, _, of, _ in operators.audit] == ["at most 5 of 5 letters: all", "3 of 3 letters: all"]


def test_without_zookeeper_letters_are_dismissed_by_force_only(operators: Operators) -> None:
    operators.world.zookeeper.set_available(False)
    by = Operator(who="one@here", why="old")
    with chosen_letters(operators.world, operators.config, Choice()) as chosen:
        with pytest.raises(StoreUnavailable):
            dismiss(operators.world, operators.config, chosen, by)
        assert operators.left == 1_000
        assert dismiss(operators.world, operators.config, chosen, by, force=True) == 1_000
    assert operators.left == 0


def test_a_dismissal_whose_session_was_lost_marks_nothing(operators: Operators) -> None:
    class Losing(InMemoryDeadLetterSink):
        """Its reader's session ends at the second look, when the letters are held."""

        looks = 0

        def read(self, outcome: LetterOutcome | None = None) -> list[DeadLetter]:
            self.looks += 1
            if self.looks == 2:
                operators.world.zookeeper.expire("operator-1")
            return list(super().read(outcome))

    operators.world.sink = Losing()
    operators.world.sink.write([letter(1)])
    with pytest.raises(StoreUnavailable, match="begin again"):
        operators.dismiss("one@here")
    assert operators.left == 1
