"""The next records of one shard, handed out, acked and failed without the consumer's lock.

To decide upon a record, and to take its ack in, costs a look at everything that the lock guards. So where
nothing has to be decided record by record, a *run* of records is decided upon together, and their hand-outs,
acks and failures are noted here. A note moves a record from one collection to another; between the two it is in
neither, and stays so if Ctrl-C comes there (``expired``). Whoever takes the consumer's lock *gathers* first:
the tracker is told of what was handed out, acked and failed meanwhile, and the rest of the run goes back to its
shard. So under the lock everything is as if each record had been decided upon by itself, and whatever is
decided there (a pause, a lost shard, the end) holds for the next record.

What is at hand is a run of fresh records, or retries that are due, each of which is tracked by itself. Those that
were not handed out are withdrawn, as if nobody had taken them.

What was handed out of a run stays together, as a ``RecordRun``, until the last of it has ended: the tracker is
told of acks run by run, a record that failed is singled out, and all deliveries of a run have one deadline.

A failure is noted here, too, if no record of the run has to wait for it. After ``_MOST_FAILED`` of them somebody
gathers, so that deliveries slow down in time.

A run ends after ``_LONGEST_SECONDS`` at the latest: then retries are due, deadlines pass, other shards have their
turn. One that was as long as it might be, and was handed out whole, is followed by a longer one; any other by a
shorter one. So it is with retries: to take some and put them back costs more than to take one.

An error while somebody gathers, which can be the caller's Ctrl-C, ends the consumer: the tracker knows a part of
the run, and a record behind it must not be tracked before the rest.
"""

from collections import OrderedDict, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator
from itertools import repeat
from math import inf
from typing import Final, NamedTuple

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.model.handler import Failure
from kinesis_spout.model.record import Record
from kinesis_spout.plain.buffered_shards import BufferedShards, DueRetry, RecordRun
from shard_state import Delivery, Order

_LONGEST_SECONDS: Final = 0.01
_FEWEST, _MOST = 32, 512
"""Records of a run."""
_MOST_FAILED: Final = 8

Out = tuple[str, Record, RecordRun | None, int]
"""What is handed out: its message id, the record, the run that it is of, if any, and its index there. A plain
tuple, as one is made for each record."""


class _Failed(NamedTuple):
    out: Out
    failure: Failure
    at: float


class RecordsAtHand:
    """Of one stream. Mutable; ``take``, ``ack`` and ``fail`` are thread-safe, all else is under the lock."""

    def __init__(self, consumer: Consumer, shards: BufferedShards, prefix: str) -> None:
        self._consumer = consumer
        self._shards = shards
        self._prefix = prefix
        self._order = consumer.manager.order
        timeout_seconds = consumer.config.message_timeout_seconds
        self._timeout_seconds = inf if timeout_seconds is None else timeout_seconds
        self._monotonic = consumer.ports.clock.monotonic
        self._is_certain = consumer.ports.coordinator.is_certain
        self._most = self._most_retries = _FEWEST
        self._until = 0.0
        self._run: RecordRun | None = None
        self._retries: list[DueRetry] = []
        """What is at hand, if it is no run."""
        self._waiting: deque[Out] = deque()
        """Those at hand that were not handed out yet."""
        self._handed_at = 0.0
        self._out: dict[str, Out] = {}
        """What was handed out from here and has no outcome, by message id."""
        self._ended: deque[Out | _Failed] = deque()
        """Acks and failures that are not gathered yet."""
        self._failed = 0
        """How many of these are failures, or a few less where threads met."""
        self._deadlines: OrderedDict[RecordRun, float] = OrderedDict()
        """Of the runs that were handed out and are not finished, the earliest first."""

    # Without the lock

    def take(self) -> Out | None:
        """Hand out the next record; None if the caller has to look under the lock."""
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
        self._out[taken[0]] = taken
        return taken

    def ack(self, message_id: str) -> bool:
        """Finish a record; False if the caller has to look under the lock."""
        out = self._out.pop(message_id, None)
        if out is None:
            return False
        self._ended.append(out)
        return True

    def fail(self, message_id: str, failure: Failure) -> bool:
        """Fail a delivery; False if the caller has to look under the lock."""
        out = self._out.pop(message_id, None)
        if out is None:
            return False
        self._ended.append(_Failed(out, failure, self._monotonic()))
        self._failed += 1
        if self._failed >= _MOST_FAILED or self._is_waited_for(out[1]):
            with self._consumer.lock:
                pass  # who takes the lock gathers
        return True

    def _is_waited_for(self, record: Record) -> bool:
        """Whether a record that is at hand must not be handed out while another one waits."""
        if self._order is not Order.KEY:
            return self._order is Order.SHARD
        key = record.partition_key
        return key is not None and any(waiting[1].partition_key == key for waiting in self._waiting.copy())

    # Under the lock

    def prepared(self, now: float) -> Out | None:
        """Put the next records at hand, and hand out the first; None if each has to be decided upon by itself."""
        try:
            return self._prepared(now)
        except BaseException as error:
            self._consumer.end_with(_interrupted(error))
            raise

    def _prepared(self, now: float) -> Out | None:
        assert self._run is None, "who takes the lock gathers"
        assert not self._retries, "who takes the lock gathers"
        run = self._shards.take_run(now, self._most)
        waiting: Iterator[Out]
        if run is not None:
            self._run = run
            ids = self._ids(run, run.records)
            waiting = zip(ids, run.records, repeat(run), range(len(ids)), strict=False)
        else:
            self._retries = self._shards.take_due_retries(now, self._most_retries)
            if not self._retries:
                return None
            records = [retained.record for retained, _ in self._retries]
            waiting = iter([(self._id_of_retry(record), record, None, 0) for record in records])
        self._until, self._handed_at = now + _LONGEST_SECONDS, now
        first = next(waiting)
        self.handed_out(first)
        self._waiting.extend(waiting)
        return first

    def _ids(self, run: RecordRun, records: Iterable[Record]) -> list[str]:
        before, behind = f"{self._prefix}{run.shard_id}:", f"#{run.epoch}.1"
        if not run.has_user_records:
            return [f"{before}{record.sequence_number}{behind}" for record in records]
        return [f"{before}{record.sequence_text}{behind}" for record in records]

    def _id_of_retry(self, record: Record) -> str:
        state = self._consumer.manager.shard(record.shard_id)
        assert state is not None, "it was taken just now"
        return f"{self._prefix}{record.message_id}#{state.epoch}.{record.attempt}"

    def handed_out(self, out: Out) -> None:
        """Let a record that was handed out be acked here."""
        self._out[out[0]] = out

    def in_run(self, message_id: str) -> Record | None:
        """Give a record of a run that is handed out and has no outcome."""
        out = self._out.get(message_id)
        return None if out is None or out[2] is None else out[1]

    def single_out(self, message_id: str) -> None:
        """Let a delivery that is to fail at once be tracked by itself; without effect if it is not at hand."""
        out = self._out.pop(message_id, None)
        if out is not None and out[2] is not None:
            self._single_out(out[2], out[3])

    def expired(self, now: float) -> list[Delivery]:
        """Single out the deliveries of runs whose message time-out has passed; the caller fails them.

        An open one that is not in ``_out`` is in the hands of a thread that just hands it out, acks or fails it,
        or was interrupted in that by the caller's Ctrl-C. So it is late only when a second time-out has passed.
        """
        late: list[Delivery] = []
        while self._deadlines and next(iter(self._deadlines.values())) <= now:
            run, _ = self._deadlines.popitem(last=False)
            for index in run.tracked.open_records():
                (message_id,) = self._ids(run, [run.records[index]])
                if self._out.pop(message_id, None) is not None or run.was_late:
                    late.append(Delivery(run.shard_id, run.sequence_of(index), 1))
                    self._single_out(run, index)
            if run.tracked.open:
                run.was_late = True
                self._deadlines[run] = now + self._timeout_seconds
        return late

    def gather(self) -> None:
        """Have the tracker know what was handed out and has ended, and put back what was not handed out."""
        if self._run is None and not self._retries and not self._ended:
            return
        try:
            self._failed = 0
            ended = [self._ended.popleft() for _ in range(len(self._ended))]
            run, self._run = self._run, None
            retries, self._retries = self._retries, []
            if run is not None:
                self._gather_run(run)
            if retries:
                left = self._taken_back()
                self._most_retries = (
                    max(1, self._most_retries // 2) if left else min(_FEWEST, 2 * self._most_retries)
                )
                self._shards.handed_out_retries(retries, len(retries) - left, self._handed_at)
            self._gather_ended(ended)
        except BaseException as error:
            self._consumer.end_with(_interrupted(error))
            raise

    def lost(self, shard_ids: Collection[str]) -> None:
        out = self._out.copy()  # other threads hand out and ack meanwhile
        for message_id in [each for each, (_, record, *_) in out.items() if record.shard_id in shard_ids]:
            self._out.pop(message_id, None)
        for run in [run for run in self._deadlines if run.shard_id in shard_ids]:
            del self._deadlines[run]

    def _gather_run(self, run: RecordRun) -> None:
        left = self._taken_back()
        handed_out = len(run.records) - left
        was_cut = left or handed_out < self._most
        self._most = max(_FEWEST, self._most // 2) if was_cut else min(_MOST, 2 * self._most)
        self._shards.handed_out(run, handed_out)
        if handed_out:
            self._deadlines[run] = self._handed_at + self._timeout_seconds

    def _taken_back(self) -> int:
        """Hand out nothing more of what is at hand; returns how many that were."""
        left = 0
        try:
            while True:
                self._waiting.pop()
                left += 1
        except IndexError:
            return left

    def _gather_ended(self, ended: Iterable[Out | _Failed]) -> None:
        acked = defaultdict[RecordRun | None, list[Out]](list)
        for each in ended:
            if isinstance(each, _Failed):
                self._gather_acked(acked, each.at)
                self._gather_failed(each)
            else:
                acked[each[2]].append(each)
        self._gather_acked(acked, self._consumer.now)

    def _gather_acked(self, acked: dict[RecordRun | None, list[Out]], now: float) -> None:
        for run, each in acked.items():
            if run is None:
                self._shards.acked([record for _, record, _, _ in each], now)
            else:
                indices = [index for _, _, _, index in each]
                if run.was_late:
                    indices = [index for index in indices if not run.tracked.ended[index]]
                self._shards.acked_in_run(run, indices, now)
                self._forget_finished(run)
        acked.clear()

    def _gather_failed(self, failed: _Failed) -> None:
        message_id, record, run, index = failed.out
        state = self._consumer.manager.shard(record.shard_id)
        if state is None or not message_id.endswith(f"#{state.epoch}.{record.attempt}"):
            return  # its shard was lost meanwhile: another delivery can be out
        if run is not None and not run.tracked.ended[index]:
            self._single_out(run, index)
        self._shards.fail(record.shard_id, record.sequence, record.attempt, failed.failure, failed.at)

    def _single_out(self, run: RecordRun, index: int) -> None:
        self._shards.single_out(run, index)
        self._forget_finished(run)

    def _forget_finished(self, run: RecordRun) -> None:
        if not run.tracked.open:
            self._deadlines.pop(run, None)


def _interrupted(error: BaseException) -> BaseException:
    if isinstance(error, Exception):
        return error
    ended = KinesisSpoutError(
        f"{type(error).__name__} while acks were taken in; open the stream again to go on"
    )
    ended.__cause__ = error
    return ended
