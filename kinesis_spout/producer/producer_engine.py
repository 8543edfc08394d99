"""Does what a sender decides: the calls, the dead letters, the spool; in its own threads once started."""

import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

from kinesis_spout.dead_letters.log_lines import DeadLetterLines
from kinesis_spout.kinesis.calls import translate
from kinesis_spout.kinesis.io_thread import IO
from kinesis_spout.kinesis.retry_policy import CallRetryPolicy, Jitter, Told
from kinesis_spout.kinesis.write.hash_key_ranges import HashKeyRanges
from kinesis_spout.kinesis.write.put_records import CallLimits, PutOrder
from kinesis_spout.kinesis.write.record_putter import PutCalls
from kinesis_spout.kinesis.write.waiting_records import WaitingRecords
from kinesis_spout.model.clock import Clock
from kinesis_spout.model.distribution import Counted
from kinesis_spout.model.errors import KinesisSpoutError, SpoolDamaged, SpoolError
from kinesis_spout.model.logs import counted
from kinesis_spout.model.record import DeadLetter
from kinesis_spout.ports import DeadLetterSink
from kinesis_spout.producer.buffer import Buffer
from kinesis_spout.producer.endings import Letters
from kinesis_spout.producer.promise import called_back
from kinesis_spout.producer.sender import Call, Recovery, Sender, WorkToDo
from kinesis_spout.producer.spool import Spool, Spooled
from kinesis_spout.producer.tickets import AnyTicket, FailedRecord, Ticket, tickets_in
from kinesis_spout.settings.producer_config import ProducerConfig

if TYPE_CHECKING:
    import asyncio

    from mypy_boto3_kinesis import KinesisClient
    from mypy_boto3_kinesis.type_defs import PutRecordsResultEntryTypeDef as Result

    from kinesis_spout.kinesis.write.put_records import Puttable
    from kinesis_spout.tracing import PutTracing

APPLICATION: Final = "KinesisProducer"
"""In place of an application's name in dead letters of producers."""

_RECOVERED_AT_ONCE: Final = 1_000

_log = logging.getLogger(__name__)


class Engine:
    """The work of a producer. Thread-safe; ``_lock`` guards the sender.

    Until it is started it has no threads: a caller asks for `next_work` and runs it with `do`.
    """

    def __init__(
        self,
        config: ProducerConfig,
        client: "KinesisClient",
        *,
        sink: DeadLetterSink | None,
        spool: Spool | None,
        tracing: "PutTracing | None",
        on_failure: Callable[[FailedRecord], object] | None,
        clock: Clock,
        jitter: Jitter,
    ) -> None:
        self._stream = config.stream
        self.buffer = Buffer(config.max_buffered_records, config.max_buffered_bytes, self.wake)
        self._sink = sink
        self._spool = spool
        self._tracing = tracing
        self._on_failure = on_failure
        self._clock = clock
        self._told = Told(clock)
        """Guarded by the lock."""
        self._lines = DeadLetterLines(_log, f" of the producer of {self._stream}")
        # Each record has its own deadline.
        retry_policy = CallRetryPolicy(deadline_seconds=inf, clock=clock, jitter=jitter)
        self._calls = PutCalls(client, config.stream, retry_policy)
        records = WaitingRecords(
            self._calls.work,
            retry_policy=retry_policy,
            limits=CallLimits(records=config.max_records_per_call, size_bytes=config.max_bytes_per_call),
            order=PutOrder(config.order),
            aggregate_bytes=config.aggregation_max_bytes if config.aggregation else None,
        )
        self._sender = Sender(
            records,
            self.buffer,
            config,
            has_dead_letters=sink is not None,
            recovers=spool is not None,
            clock=clock,
            jitter=jitter,
        )
        self._lock = threading.Lock()
        self._something_ended = threading.Condition(self._lock)
        self._name = f"producer-{uuid.uuid4().hex[:8]}"
        self.is_stopped = False
        """True if everything has ended, and nothing is left to do."""
        self._threads: list[threading.Thread] = []
        self._bell = threading.Condition()
        self._rings = 0
        """The number of threads that must still wake to look for work; ``_bell`` guards it."""
        self._spool_failure: SpoolError | None = None

    def start(self, threads: int) -> None:
        """Do the work in so many threads, each with one call at a time. They keep no process alive.

        They hold the I/O thread: what is left when the program ends goes by it, and no thread can be started then.
        """
        names = [f"producer of {self._stream} {number}" for number in range(1, threads + 1)]
        self._threads = [
            threading.Thread(target=self._run, args=(IO.hold(),), name=name, daemon=True) for name in names
        ]
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        with self._bell:
            self._rings = min(self._rings + 1, len(self._threads))
            self._bell.notify()

    @property
    def call_seconds(self) -> Counted:
        return self._calls.seconds

    @property
    def is_called_back(self) -> bool:
        """True if this is one of its threads: a ticket's callback, which must not wait for what they do."""
        return threading.current_thread() in self._threads

    def join(self, timeout: float) -> None:
        """Wait until the threads of the stopped engine have ended, at most so many seconds."""
        with self._bell:
            self._rings = len(self._threads)
            self._bell.notify_all()
        deadline = self._clock.monotonic() + timeout
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - self._clock.monotonic()))

    def _run(self, loop: "asyncio.AbstractEventLoop") -> None:
        try:
            while not self.is_stopped:
                work, due_at, another = self.next_work()
                if another:
                    self.wake()
                if work is None:
                    self._sleep(due_at)
                else:
                    self.do(work)
        finally:
            IO.release(loop)

    def _sleep(self, due_at: float) -> None:
        with self._bell:
            if not self._rings:
                seconds = None if due_at == inf else max(0.0, due_at - self._clock.monotonic())
                self._bell.wait(seconds)
            self._rings = max(0, self._rings - 1)

    def next_work(self) -> tuple[WorkToDo | None, float, bool]:
        """Return the work to do now, when to ask again at the latest (monotonic), and if another should ask."""
        with self._lock:
            if self.is_stopped:
                return None, inf, True
            work = self._sender.next_work()
            is_armed = self.buffer.arm(*self._sender.wakes_at)
            due_at = self._due_at()
            another = not is_armed or (work is not None and due_at < inf)
        self._tell()
        self._lines.say(self._clock.monotonic())
        return work, due_at, another

    @property
    def due_at(self) -> float:
        """When there may be something to do although nothing comes, as monotonic time."""
        with self._lock:
            return self._due_at()

    def _due_at(self) -> float:
        return min(self._sender.due_at, self._lines.due_at)

    def do(self, work: WorkToDo) -> None:
        if isinstance(work, Call):
            self._put(work)
        elif isinstance(work, Letters):
            self._write(work)
        elif isinstance(work, Recovery):
            self._recover()
        else:
            self._list()
        self._tell()

    def drop_oldest(self, put: AnyTicket) -> bool:
        with self._lock:
            has_room = self._sender.drop_oldest(put)
        self._tell()
        return has_room

    @contextmanager
    def flushing(self) -> Iterator[None]:
        with self._lock:
            self._sender.flushes += 1
            self._sender.recover()
        self.wake()
        try:
            yield
        finally:
            with self._lock:
                self._sender.flushes -= 1

    def not_ended(self) -> list[AnyTicket]:
        with self._lock:
            return [] if self.is_stopped else self._sender.not_ended()

    @property
    def is_recovering(self) -> bool:
        return not self.is_stopped and self._sender.is_recovering

    def await_end(self, is_over: Callable[[], bool], timeout: float) -> None:
        """Return when something or everything has ended, or after so many seconds.

        ``is_over`` is asked whenever records have ended, or the last of an earlier producer's have come.
        """
        with self._something_ended:
            self._something_ended.wait_for(lambda: self.is_stopped or is_over(), timeout)

    def stop(self, reason: str) -> int:
        """Fail everything that has not ended, and return its number."""
        with self._lock:
            self.is_stopped = True
            left = self._sender.abandon(reason)
            self._something_ended.notify_all()
        self._tell()
        self._lines.say()
        return left

    def forget(self) -> None:
        """Stop in a child process. The working threads are its parent's; one may hold the lock."""
        self._lock = threading.Lock()
        self._something_ended = threading.Condition(self._lock)
        self._bell = threading.Condition()
        self.is_stopped = True
        self.buffer = Buffer(1, 1, lambda: None)
        self.buffer.close()

    def _put(self, call: Call) -> None:
        work = self._calls.work
        try:
            results = self._calls.put(call.batch) if self._tracing is None else self._put_traced(call.batch)
        except Exception as error:  # noqa: BLE001 - the records of the call must end, whatever happened
            failure = error if isinstance(error, KinesisSpoutError) else translate(error, work)
        else:
            with self._lock:
                self._told = Told(self._clock)
                self._sender.answered(call, results)
            return
        with self._lock:
            is_news = self._told.is_news(failure)
            self._sender.failed(call, failure)
        if is_news:
            _log.warning("%s", failure)

    def _put_traced(self, batch: "Sequence[Puttable]") -> "Sequence[Result]":
        assert self._tracing is not None, "asked before"
        held = [ticket for put in batch for ticket in tickets_in(put)]
        with self._tracing.sending(len(held), (each.trace for each in held)):
            return self._calls.put(batch)

    def _list(self) -> None:
        try:
            ranges = self._calls.shards()
        except Exception as error:  # noqa: BLE001 - records wait for it, and can be put without
            _log.warning(
                "The shards of %s cannot be listed: %s: %s", self._stream, type(error).__name__, error
            )
            ranges = HashKeyRanges.unknown()
        with self._lock:
            self._sender.listed(ranges)

    def _write(self, letters: Letters) -> None:
        assert self._sink is not None, "only with a sink there are dead letters"
        try:
            self._sink.write([self._letter(each, letters) for each in letters.held])
        except Exception as error:  # noqa: BLE001 - a sink may be the user's own, and the records must end
            _log.warning("Dead letters of %s could not be written: %s", self._stream, error)
            with self._lock:
                self._sender.not_written(letters, error)
        else:
            with self._lock:
                self._sender.written(letters)
            self._lines.written(len(letters.held), self._clock.monotonic())

    def _letter(self, ticket: Ticket, letters: Letters) -> DeadLetter:
        return DeadLetter(
            application=APPLICATION,
            stream=self._stream,
            shard_id=self._name,
            sequence_number=str(ticket.row),
            partition_key=ticket.partition_key,
            arrival_timestamp=None,
            data=ticket.data,
            explicit_hash_key=ticket.explicit_hash_key,
            attempts=ticket.tries,
            error=f"{type(letters.error).__name__}: {letters.error}",
            reason=letters.reason,
            died_at=self._clock.time(),
        )

    def take_spool_failure(self) -> SpoolError | None:
        """Return why the spool could not be read further, until it can be; or, once, which records are lost."""
        with self._lock:
            failure = self._spool_failure
            if isinstance(failure, SpoolDamaged):
                self._spool_failure = None
        return failure

    def _recover(self) -> None:
        """Read further in the spool. Damage is noted, and reading continues behind it."""
        assert self._spool is not None, "only with a spool is anything recovered"
        spooled: Sequence[Spooled] = ()
        failure: SpoolError | None = None
        try:
            spooled = self._spool.recovered(_RECOVERED_AT_ONCE)
        except SpoolError as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - it may be the user's own, and new records wait for this
            failure = SpoolError(f"{type(error).__name__}: {error}")
        tickets = [
            Ticket(
                entry.partition_key,
                entry.data,
                entry.explicit_hash_key,
                size_bytes=entry.size_bytes,
                number_in_spool=number,
            )
            for number, entry in spooled
        ]
        with self._lock:
            if self.is_stopped:
                return  # they stay in the spool
            before = self._spool_failure
            is_new = str(failure) != str(before)
            if failure is None:
                self._sender.recovered(tickets)
            else:
                # Each damage is raised once. A spool that raises it again makes no progress.
                self._sender.not_recovered(reads_on=isinstance(failure, SpoolDamaged) and is_new)
            if failure is not None or not (tickets or isinstance(before, SpoolDamaged)):
                self._spool_failure = failure
            if not tickets:
                self._something_ended.notify_all()
        if failure is not None and is_new:
            _log.error("%s", failure)

    def _tell(self) -> None:
        """Confirm to the spool what ended, log failures, and call the callbacks."""
        with self._lock:
            ended = self._sender.ended()
            if ended.count:
                self._something_ended.notify_all()
        if ended.to_confirm:
            self._confirm(ended.to_confirm)
        for count, error in ended.failures:
            _log.warning("%s for %s failed: %s", counted(count, "record"), self._stream, error)
        for held, error in ended.to_report:
            self.report(held, error)
        for ticket in ended.to_tell:
            ticket.tell()

    def report(self, ticket: Ticket, error: KinesisSpoutError) -> None:
        """Tell ``on_failure`` of a record that no caller has a ticket of."""
        if self._on_failure is not None:
            failed = FailedRecord(ticket.data, ticket.partition_key, ticket.explicit_hash_key, error)
            called_back(partial(self._on_failure, failed))

    def _confirm(self, numbers: Sequence[int]) -> None:
        assert self._spool is not None, "only with a spool is anything confirmed"
        try:
            self._spool.confirm(numbers)
        except Exception as error:  # noqa: BLE001 - as above; the records have ended in any case
            _log.warning("%s; %d records that have ended may be sent again", error, len(numbers))
