"""The next fresh records of one shard, handed out and acked without the consumer's lock.

To decide upon a record, and to take its ack in, costs a look at everything that the lock guards. So where nothing
has to be decided record by record, a *run* of records is decided upon together, and their hand-outs and acks are
noted here, each by one operation that the interpreter does not interrupt. Whoever takes the consumer's lock
*gathers* first: what was handed out and acked meanwhile becomes spans of the tracker, and the rest of the run goes
back to its shard. So under the lock everything is as if each record had been decided upon by itself, and whatever
is decided there (a failure, a pause, a lost shard, the end) holds for the next record.

A run ends after ``_LONGEST_SECONDS`` at the latest: then retries are due, deadlines pass, other shards have their
turn. One that did not last so long is followed by a longer one; one that did, by a shorter one, as does one that
ended before a record that has to wait.

An error in between, which can be the caller's Ctrl-C, ends the consumer: the tracker knows a part of the run, and
a record behind it must not be tracked before the rest.
"""

from collections import deque
from collections.abc import Collection
from typing import Final

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.model.record import Record
from kinesis_spout.plain.buffered_shards import BufferedShards, Run

_LONGEST_SECONDS: Final = 0.01
_FEWEST, _MOST = 32, 512
"""Records of a run."""


class RecordsAtHand:
    """Of one stream. Mutable; ``take``, ``ack`` and ``forget`` are thread-safe, all else is under the lock."""

    def __init__(self, consumer: Consumer, shards: BufferedShards, prefix: str) -> None:
        self._consumer = consumer
        self._shards = shards
        self._prefix = prefix
        self._monotonic = consumer.ports.clock.monotonic
        self._is_certain = consumer.ports.coordinator.is_certain
        self._most = _FEWEST
        self._until = 0.0
        self._run: Run | None = None
        self._ids: list[str] = []
        """Of the run's records."""
        self._waiting: deque[tuple[str, Record]] = deque()
        """Those of the run that were not handed out yet."""
        self._handed_at = 0.0
        self._out: dict[str, Record] = {}
        """What was handed out from here and has no outcome, by message id."""
        self._acked: deque[tuple[str, Record]] = deque()
        """Acks that are not gathered yet."""

    # Without the lock

    def take(self) -> tuple[str, Record] | None:
        """Hand out the next record, with its message id; None if the caller has to look under the lock."""
        if not self._waiting or self._consumer.fatal is not None or not self._is_certain():
            return None
        now = self._monotonic()
        if now >= self._until:
            return None
        try:
            taken = self._waiting.popleft()
        except IndexError:  # another thread took the last one, or gathers
            return None
        self._handed_at = now
        self._out[taken[0]] = taken[1]
        return taken

    def ack(self, message_id: str) -> bool:
        """Finish a record; False if the caller has to look under the lock."""
        record = self._out.pop(message_id, None)
        if record is None:
            return False
        self._acked.append((message_id, record))
        return True

    def forget(self, message_id: str) -> None:
        """Note that a delivery has ended without an ack."""
        self._out.pop(message_id, None)

    # Under the lock

    def prepared(self, now: float) -> tuple[str, Record] | None:
        """Put the next records at hand, and hand out the first; None if each has to be decided upon by itself."""
        try:
            return self._prepared(now)
        except BaseException as error:
            self._consumer.end_with(_interrupted(error))
            raise

    def _prepared(self, now: float) -> tuple[str, Record] | None:
        run = self._shards.take_run(now, self._most)
        if run is None:
            return None
        assert self._run is None, "who takes the lock gathers"
        before, behind = f"{self._prefix}{run.shard_id}:", f"#{run.epoch}.1"
        self._ids = [f"{before}{record.sequence_text}{behind}" for record in run.records]
        self._run, self._until, self._handed_at = run, now + _LONGEST_SECONDS, now
        first = self._ids[0], run.records[0]
        self.handed_out(*first)
        waiting = zip(self._ids, run.records, strict=True)
        next(waiting)
        self._waiting.extend(waiting)
        return first

    def handed_out(self, message_id: str, record: Record) -> None:
        """Let a record that was handed out be acked here."""
        self._out[message_id] = record

    def gather(self) -> None:
        """Have the tracker know what was handed out and acked, and put back what was not handed out."""
        if self._run is None and not self._acked:
            return
        try:
            acked = dict([self._acked.popleft() for _ in range(len(self._acked))])
            run, self._run = self._run, None
            if run is not None:
                self._gather_run(run, acked)
            if acked:
                self._shards.acked(acked.values())
        except BaseException as error:
            self._consumer.end_with(_interrupted(error))
            raise

    def lost(self, shard_ids: Collection[str]) -> None:
        out = self._out.copy()  # other threads hand out and ack meanwhile
        for message_id in [each for each, record in out.items() if record.shard_id in shard_ids]:
            self.forget(message_id)

    def _gather_run(self, run: Run, acked: dict[str, Record]) -> None:
        left = 0
        try:
            while True:
                self._waiting.pop()
                left += 1
        except IndexError:
            handed_out = len(self._ids) - left
        was_cut = left or handed_out < self._most
        self._most = max(_FEWEST, self._most // 2) if was_cut else min(_MOST, 2 * self._most)
        is_acked = [acked.pop(message_id, None) is not None for message_id in self._ids[:handed_out]]
        self._shards.handed_out(run, is_acked, self._handed_at)


def _interrupted(error: BaseException) -> BaseException:
    if isinstance(error, Exception):
        return error
    ended = KinesisSpoutError(
        f"{type(error).__name__} while acks were taken in; open the stream again to go on"
    )
    ended.__cause__ = error
    return ended
