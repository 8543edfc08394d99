"""Puts dead letters back on their streams, to be delivered again.

Letters are put first and marked after, batch by batch. So a crash in between puts a batch twice (at least
once, as everywhere), and none is marked that was not put. A record that was put back is a new record: it has
a new sequence number, and its attempts start from nothing. Its partition key and explicit hash key are those of
the old one, as far as Kinesis takes them.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from kinesis_spout.dead_letters.kinesis_failures import as_dead_letter_errors
from kinesis_spout.dead_letters.stored_form import RedrivenMark, mark_of
from kinesis_spout.kinesis.patience import Patience
from kinesis_spout.kinesis.write.hash_key_ranges import is_hash_key
from kinesis_spout.kinesis.write.put_records import Entry, batches
from kinesis_spout.kinesis.write.record_putter import put_all
from kinesis_spout.model.dead_letter import DeadLetter
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.ports import DeadLetterSink

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient


@runtime_checkable
class MarkingSink(DeadLetterSink, Protocol):
    """A sink that remembers what was redriven."""

    def mark_redriven(self, letters: Sequence[DeadLetter]) -> None:
        """Leave the letters out of ``read`` from now on; durable before returning.

        Raises:
            DeadLetterError: retriable; none, some or all of them may be marked.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """What a redrive did."""

    count: int
    """How many letters are back on their streams; copies of one letter count once."""
    missing: frozenset[str] = field(default=frozenset())
    """Message ids that were asked for and are not in the sink, or were redriven before."""


def redrive(
    sink: DeadLetterSink,
    client: "KinesisClient",
    message_ids: Collection[str],
    *,
    patience: Patience | None = None,
) -> Redriven:
    """Put these letters back on their streams, and mark them.

    Raises:
        InvalidConfig: the sink cannot mark; nothing was put.
        DeadLetterError: earlier batches are put and marked; calling again goes on with the others.
    """
    if not isinstance(sink, MarkingSink):
        raise InvalidConfig(
            f"sink: expected one that can mark what was redriven, got {type(sink).__name__}; "
            "its letters can only be redriven all together"
        )
    wanted = frozenset(message_ids)
    redriven = [
        letter.message_id
        for batch in _batches(letter for letter in sink.read() if letter.message_id in wanted)
        for letter in _put_and_mark(sink, client, batch, patience or Patience())
    ]
    return Redriven(count=len(redriven), missing=wanted.difference(redriven))


def redrive_all(
    sink: DeadLetterSink, client: "KinesisClient", *, force: bool = False, patience: Patience | None = None
) -> Redriven:
    """Put every letter back on its stream, and mark it.

    With ``force``, also from a sink that cannot mark: it goes on giving back its letters, so a second redrive
    puts them all again.

    Raises:
        InvalidConfig: the sink cannot mark, and it was not forced; nothing was put.
        DeadLetterError: earlier batches are put (and marked); calling again goes on with the others.
    """
    if not isinstance(sink, MarkingSink) and not force:
        raise InvalidConfig(
            f"sink: expected one that can mark what was redriven, got {type(sink).__name__}; "
            "a second redrive would put its letters again: use force to accept that"
        )
    put = (_put_and_mark(sink, client, batch, patience or Patience()) for batch in _batches(sink.read()))
    return Redriven(count=sum(len(batch) for batch in put))


def _batches(letters: Iterable[DeadLetter]) -> Iterator[list[DeadLetter]]:
    return batches(_without_copies(letters), lambda letter: _entry(letter).size_bytes)


def _without_copies(letters: Iterable[DeadLetter]) -> Iterator[DeadLetter]:
    seen: set[RedrivenMark] = set()
    for letter in letters:
        mark = mark_of(letter)
        if mark not in seen:
            seen.add(mark)
            yield letter


def _put_and_mark(
    sink: DeadLetterSink, client: "KinesisClient", letters: Sequence[DeadLetter], patience: Patience
) -> Sequence[DeadLetter]:
    by_stream: dict[str, list[Entry]] = {}
    for letter in letters:
        by_stream.setdefault(letter.stream, []).append(_entry(letter))
    with as_dead_letter_errors():
        for stream, entries in by_stream.items():
            put_all(client, stream, entries, patience)
    if isinstance(sink, MarkingSink):
        sink.mark_redriven(letters)
    return letters


def _entry(letter: DeadLetter) -> Entry:
    # PutRecords demands a key. Where the record had none, its sequence number spreads as well as any.
    key = letter.partition_key or letter.sequence_number
    hash_key = letter.explicit_hash_key
    if hash_key is not None and not is_hash_key(hash_key):
        # An aggregated record may hold any text, and a row may have been refused for it. Kinesis would refuse the
        # whole call.
        hash_key = None
    return Entry(key, letter.data, hash_key)
