"""Dead letters on a separate Kinesis stream: durable when PutRecords has taken them.

A letter is larger than its record was (base64 and metadata), and may be too large for a record of the
dead-letter stream. Such a letter is split over several records: a line of JSON that says which part of which
letter it is, then the part's bytes. A letter's JSON has no line ends, so the two cannot be confused. Parts
share a partition key, so they lie in one shard (or, after a reshard, in its child). An incomplete letter
comes from a write that failed and was repeated, and is left out.

A mark is a record of its own: a line of JSON, with its end and nothing after it.

The stream's retention ends what it keeps: 24 hours unless it was raised. It ends a letter before its mark.
"""

import logging
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from botocore.exceptions import ClientError

from kinesis_spout.dead_letters.stored_letters import (
    decoded,
    decoded_mark,
    encoded,
    encoded_mark,
    with_outcome,
)
from kinesis_spout.kinesis import KinesisShardLister, ShardGetters
from kinesis_spout.kinesis.calls import error_code
from kinesis_spout.kinesis.read.read_settings import MAX_RECORDS
from kinesis_spout.kinesis.retry_policy import CallRetryPolicy, Tries
from kinesis_spout.kinesis.write.put_records import COMMON_RECORD_BYTES, Entry
from kinesis_spout.kinesis.write.record_putter import put_all
from kinesis_spout.model.errors import DeadLetterError, InvalidConfig, KinesisError
from kinesis_spout.model.record import DeadLetter, LetterId, LetterOutcome
from shard_state import Position
from shard_state.lineage import parents_first

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

_PART_HEAD_BYTES: Final = 128

_log = logging.getLogger(__name__)


class KinesisStreamSink:
    """A stream, by name or ARN, that holds nothing but dead letters. ``close`` leaves the client open.

    ``read`` starts at the oldest record that retention has left and ends at the tip, twice: first for the marks.
    """

    def __init__(
        self,
        client: "KinesisClient",
        stream: str,
        *,
        retry_policy: CallRetryPolicy | None = None,
    ) -> None:
        self._client = client
        self._stream = stream
        self._retry_policy = retry_policy or CallRetryPolicy()
        self._lister = KinesisShardLister(
            client,
            stream,
            deadline_seconds=self._retry_policy.deadline_seconds,
            clock=self._retry_policy.clock,
            jitter=self._retry_policy.jitter,
        )

    def check_writable(self) -> None:
        """Describe the stream; see the port. Only a write could tell whether records may be put on it."""
        try:
            with as_dead_letter_errors():
                self._lister.summary()
        except DeadLetterError as error:
            if (
                isinstance(error.__cause__, ClientError)
                and error_code(error.__cause__) == "AccessDeniedException"
            ):
                _log.warning("could not find out whether the dead-letter stream exists: %s", error)
                return
            raise

    def write(self, letters: Sequence[DeadLetter]) -> None:
        self._put(entry for letter in letters for entry in self._entries(letter))

    def mark(self, letter_ids: Collection[LetterId], outcome: LetterOutcome) -> None:
        self._put(Entry(each[0], encoded_mark(each, outcome) + b"\n") for each in letter_ids)

    def read(self, outcome: LetterOutcome | None = None) -> Iterable[DeadLetter]:
        """Return what the stream holds, parents before children, each shard in order; see the port."""
        marks = (
            decoded_mark(where, head)
            for where, head, rest in self._records()
            if rest is not None and not rest
        )
        return with_outcome(self._letters(), marks, outcome)

    def _letters(self) -> Iterator[DeadLetter]:
        incomplete: dict[str, dict[int, bytes]] = {}
        for where, head, rest in self._records():
            if rest is None:
                yield decoded(where, head)
            elif rest:
                part = _part(where, head)
                parts = incomplete.setdefault(part.split, {})
                parts[part.number] = rest
                if len(parts) == part.count:
                    del incomplete[part.split]
                    yield decoded(where, b"".join(parts[number] for number in range(part.count)))

    def close(self) -> None:
        """Do nothing: the client is the caller's."""

    def _entries(self, letter: DeadLetter) -> list[Entry]:
        data = encoded(letter)
        whole = Entry(letter.message_id, data)
        if whole.size_bytes <= COMMON_RECORD_BYTES:
            return [whole]
        step = COMMON_RECORD_BYTES - len(letter.message_id.encode()) - _PART_HEAD_BYTES
        starts = range(0, len(data), step)
        split = uuid.uuid4().hex
        return [
            Entry(
                letter.message_id,
                msgspec.json.encode(_Part(split=split, number=number, count=len(starts)))
                + b"\n"
                + data[start : start + step],
            )
            for number, start in enumerate(starts)
        ]

    def _put(self, entries: Iterable[Entry]) -> None:
        with as_dead_letter_errors():
            put_all(self._client, self._stream, entries, self._retry_policy)

    def _records(self) -> Iterator[tuple[str, bytes, bytes | None]]:
        """Yield each record's place, its first line and the rest; that is None if the line has no end."""
        with as_dead_letter_errors():
            shards = self._lister.list_shards()
        for shard in parents_first(shards):
            for where, data in self._records_of(shard.shard_id):
                head, line_end, rest = data.partition(b"\n")
                yield where, head, rest if line_end else None

    def _records_of(self, shard_id: str) -> Iterator[tuple[str, bytes]]:
        """Yield every record of a shard with its place, from the oldest to the tip or the shard's end."""
        getters = ShardGetters(
            self._client,
            self._stream,
            lister=self._lister,
            clock=self._retry_policy.clock,
            jitter=self._retry_policy.jitter,
        )
        getter = getters.polled(shard_id, Position.trim_horizon())
        while True:
            with as_dead_letter_errors():
                tries = Tries(self._retry_policy, f"GetRecords of {shard_id} on {self._stream}")
                page = tries.call(partial(getter.read, MAX_RECORDS))
            for record in page.records:
                yield f"{self._stream}/{record.message_id}", record.data
            # An empty page alone is not the tip, and neither is "0 behind": some emulators always say so.
            if page.at_end or not (page.records or page.millis_behind_latest):
                return


@contextmanager
def as_dead_letter_errors() -> Iterator[None]:
    """Raise errors of the Kinesis adapter inside as DeadLetterErrors, from the same cause."""
    try:
        yield
    except (KinesisError, InvalidConfig) as error:
        raise DeadLetterError(str(error)) from (error.__cause__ or error)


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a record that holds a part of a split letter."""

    split: str
    """Differs between two writes of one letter, whose parts do not fit each other."""
    number: int
    count: int


def _part(where: str, head: bytes) -> _Part:
    try:
        return msgspec.json.decode(head, type=_Part)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DeadLetterError(
            f"{where}: expected a dead letter or a part of one, got {len(head)} bytes that are neither ({error}); "
            "is the stream used for dead letters only?"
        ) from error
