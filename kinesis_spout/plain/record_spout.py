"""The plain-Python door: Storm's verbs on a Kinesis stream, or on several.

    spout = RecordSpout("orders", app="billing")
    with spout.open() as tuples:
        for message_id, values in tuples:
            handle(values)
            tuples.ack(message_id)

Every tuple that ``next_tuple`` gives must be acked or failed; one that is neither fails after the message
time-out. A failed one comes again, until the retry limit; then it is dead-lettered. With another ``guarantee``
than at_least_once it is dead-lettered at once.

**Several streams** are asked in turn. So many calls of ``next_tuple`` as there are streams ask each of them once,
and each gives one record at most: a stream with a backlog holds up no other. A stream that had nothing rests for a
moment, so that many idle ones cost little.
"""

import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, Unpack
from weakref import WeakSet

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.consumer.counters import Counters
from kinesis_spout.consumer.handle import Handle
from kinesis_spout.consumer.ports import Ports, StreamsPorts, given_ports
from kinesis_spout.consumer.stream_set import StreamSet
from kinesis_spout.kinesis import Prefetcher
from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.errors import (
    InvalidConfig,
    MissingExtra,
    SpoutClosed,
    StreamNotFound,
    refuse_other_kind,
)
from kinesis_spout.model.handler import failure_of, failure_saying
from kinesis_spout.model.record import Record
from kinesis_spout.model.scheme import resolve
from kinesis_spout.monitoring.doors import Monitored
from kinesis_spout.plain.buffered_shards import BufferedShards
from kinesis_spout.plain.listener import Announcements, SpoutListener
from kinesis_spout.plain.stream_tuples import Emitted, MessageId, StreamTuples
from kinesis_spout.processes.stop_signals import stop_signals
from kinesis_spout.settings import SpoutConfig, SpoutSettings
from kinesis_spout.settings.spout_config import refuse_misplaced

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from kinesis_spout.tracing import ProcessTracing

_STEP_SECONDS: Final = 0.005
"""Between two looks for the next tuple, when iterating."""


class RecordSpout(Handle):
    """A spout of one application on one stream or several. Mutable; thread-safe.

    It is *new* until ``activate`` (or ``open``), then active or deactivated, and in the end closed. A spout
    whose start failed is closed too; make another one to try again.

    With several streams, ``next_tuple`` serves them in turn, and a message id begins with its stream and a
    slash. A stream that is deleted ends alone.

    Args:
        stream: the setting of that name, which may also be given by its name.
        config: the settings. Without it they are taken from ``settings`` over the environment variables
            ``KINESIS_SPOUT_*``; see ``SpoutConfig.load``.
        ports: what to use instead of Kinesis and ZooKeeper; the spout closes it. `Ports` are of one stream.
        scheme: what the values of a tuple are; see ``kinesis_spout.model.scheme.resolve``.
        listener: is called with what becomes of each record.
        settings: see ``SpoutConfig``.

    Raises:
        InvalidConfig: a setting or the scheme is not valid, or both ``config`` and ``settings`` are given.
    """

    _rest_seconds: ClassVar[float] = 0.001
    """The time for which a stream without tuples rests, for each other stream: asking costs 20 µs."""

    def __init__(
        self,
        stream: str | Sequence[str] | None = None,
        /,
        *,
        config: SpoutConfig | None = None,
        ports: Ports | StreamsPorts | None = None,
        scheme: str | Callable[[Record], Any] = "raw",
        listener: SpoutListener | None = None,
        **settings: Unpack[SpoutSettings],
    ) -> None:
        refuse_misplaced(type(self).__name__, stream, config)
        if stream is not None:
            if "stream" in settings:
                raise InvalidConfig(
                    f"stream: expected it once, got {stream!r} first in the call and "
                    f"stream={settings['stream']!r}: leave one of them out"
                )
            settings["stream"] = stream
        if config is not None and settings:
            raise InvalidConfig(
                f"expected a config or settings, got both (settings: {', '.join(sorted(settings))}): "
                "put them into the config, or leave it out"
            )
        self.config = SpoutConfig.load(**settings) if config is None else config
        self._given_ports = None if ports is None else given_ports(ports, self.config)
        self._scheme = resolve(scheme)
        if listener is not None:
            refuse_other_kind(
                "listener", "a SpoutListener", listener, "emitted", "acked", "failed", "exhausted"
            )
        self._announcements = None if listener is None else Announcements(listener)
        self._streams: StreamSet[StreamTuples] | None = None
        self._clock: Clock = SystemClock()
        self._is_several = self.config.is_several
        self._monitored = Monitored()
        self._tracing = _tracing_of(self.config)
        self._active = False
        self._closed = False
        self._parent: int | None = None
        """The process that opened this spout, in one that was forked from it."""
        self._only: StreamTuples | None = None
        """The stream, while the spout is open and reads no other."""
        self._turns: deque[tuple[str, StreamTuples]] = deque()
        """The streams in their turns; those of ``_turns_of``."""
        self._turns_of: Mapping[str, StreamTuples] = {}

    # Life

    def activate(self) -> None:
        """Begin to hand out tuples; after ``deactivate``, continue. Call it from one thread at a time.

        Raises:
            SpoutClosed: it was closed.
            KinesisSpoutError: the first start failed (see ``StreamSet.start``); the spout is closed now.
        """
        self._refuse_if_closed()
        if self._streams is None:
            try:
                self._start()
            except BaseException as error:
                self._closed = True
                if isinstance(error, MissingExtra):
                    raise error.with_traceback(None) from None  # as ``extras`` does: no frames of ours
                raise
        self._active = True

    def deactivate(self) -> None:
        """Hand out no more tuples until ``activate``. Acks, fails, time-outs and commits continue."""
        streams = self._opened()
        self._active = False
        for tuples in streams.current.values():
            tuples.end_run()

    def open(self) -> Self:
        """Activate, and return this spout, for ``with`` and for iteration."""
        self.activate()
        return self

    def close(self) -> None:
        """Store what is finished, give the shards up, and close all that was opened. May be called twice.

        Records in flight come again at the next start, if the guarantee is at_least_once.

        Raises:
            KinesisSpoutError: the last dead letters or progress could not be stored. Everything is closed
                all the same, and nothing is lost: the records concerned come again.
        """
        if self._closed:
            return
        self._closed, self._active, self._only = True, False, None
        if self._streams is not None:
            self._close(self._streams)
        elif self._given_ports is not None:
            self._given_ports.close()

    def _start(self) -> None:
        ports = self._streams_ports(self.config)
        self._clock = ports.clock
        self._prefetcher = self._new_prefetcher(ports.clock)
        streams = StreamSet(self.config, ports, self._open_one)
        try:
            self._monitored = Monitored(self.config.http)
            streams.start()
        except BaseException:
            self._close(streams)
            raise
        self._watch(streams)
        self._streams = streams
        _open.add(self)
        if not self._is_several:
            self._only = next(iter(streams.current.values()))
        self._monitored.watch(self)

    def _close(self, streams: StreamSet[StreamTuples]) -> None:
        try:
            streams.close()
        finally:
            self._prefetcher.close()
            self._monitored.close()

    def _open_one(self, config: SpoutConfig, ports: Ports) -> StreamTuples:
        consumer = self._new_consumer(config, ports)
        shards = BufferedShards(consumer, self._prefetcher)
        try:
            consumer.start(shards)
        except BaseException:
            consumer.close(commit=False)
            raise
        prefix = f"{config.stream_name}/" if self._is_several else ""
        return StreamTuples(
            consumer,
            shards,
            self._scheme,
            self._announcements,
            prefix=prefix,
            is_active=lambda: self._active,
            tracing=self._tracing,
        )

    def _streams_ports(self, config: SpoutConfig) -> StreamsPorts:
        if self._given_ports is not None:
            return self._given_ports
        from kinesis_spout.consumer.open_ports import RealPorts  # noqa: PLC0415 - boto3 takes as long as all else

        return RealPorts(config)

    def _new_consumer(self, config: SpoutConfig, ports: Ports) -> Consumer:
        return Consumer(config, ports, message_timeout_seconds=config.message_timeout_seconds)

    def _new_prefetcher(self, clock: Clock) -> Prefetcher:
        return Prefetcher(clock=clock)

    def _watch(self, streams: StreamSet[StreamTuples]) -> None:
        streams.watch()

    def __repr__(self) -> str:
        if self._closed:
            state = "closed"
        elif self._streams is None:
            state = "new"
        else:
            state = "active" if self._active else "deactivated"
        name, config = type(self).__name__, self.config
        return f"{name}(stream={config.stream!r}, app={config.app!r}, state={state!r})"

    def __enter__(self) -> Self:
        """Return this spout; ``with`` closes it. Entering does not activate it: ``open`` does."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Tuples

    def next_tuple(self) -> Emitted | None:
        """Return the next tuple: a due retry, or a fresh record. None if nothing is due now. Never blocks.

        There is none while the rates of deliveries are used up (``rate_wait_seconds`` says for how long), and
        none while ZooKeeper has not answered lately, as after this process was stopped: another member may
        own the shards.

        Raises:
            SpoutClosed: it was closed, or never activated.
            KinesisSpoutError: one that a retry does not mend. If it concerns a shard, or one stream of
                several, the next call serves the others, and this one raises again when its turn comes.
                StreamNotFound: the stream is deleted; or all are, and no pattern can find others.
        """
        only = self._only  # ``close`` takes it away meanwhile
        try:
            return self._next_in_turn() if only is None else only.next()
        finally:
            if self._announcements is not None:
                self._announcements.make()

    def _next_in_turn(self) -> Emitted | None:
        streams = self._opened()
        if streams.current is not self._turns_of:
            self._enroll(streams.current)
        now, others = self._clock.monotonic(), len(self._turns) - 1
        for _ in range(1 + others):
            name, tuples = self._turns[0]
            self._turns.rotate(-1)
            if tuples.rests_until > now:
                continue
            try:
                emitted = tuples.next()
            except StreamNotFound as gone:
                streams.end(name, gone)
                continue
            if emitted is not None:
                return emitted
            tuples.rests_until = now + self._rest_seconds * others
        if streams.error is not None:
            raise streams.error
        return None

    def _enroll(self, current: Mapping[str, StreamTuples]) -> None:
        """Let the streams that are read now take turns, and no others."""
        kept = [name for name, _ in self._turns if name in current]
        names = kept + [name for name in current if name not in kept]
        self._turns, self._turns_of = deque((name, current[name]) for name in names), current

    def __iter__(self) -> Iterator[Emitted]:
        """Yield tuple after tuple, waiting for the next one.

        Ends when every shard is over, when the run has come up to its `until` (see ``is_done``), or when the
        spout is deactivated or closed. In the main thread SIGTERM and Ctrl-C end it too: the loop's body ends
        first, and the spout is deactivated, so that ``close`` leaves nothing to be repeated. A second Ctrl-C does
        not wait; a handler of the program's own is left alone. Raises like ``next_tuple``.
        """
        self._opened()
        with stop_signals() as stop:
            while self._active or self._parent is not None:
                if stop.signal is not None:
                    self.deactivate()
                    return
                try:
                    emitted = self.next_tuple()
                    is_over = emitted is None and self.is_done
                except SpoutClosed:
                    if self._parent is not None:
                        raise
                    return  # by another thread, or by the caller's loop
                if emitted is not None:
                    yield emitted
                elif is_over:
                    return
                else:
                    self._clock.sleep(_STEP_SECONDS)

    def ack(self, message_id: str) -> bool:
        """Finish a record. So does a late ack of a delivery that had failed: it cancels the retry.

        Returns:
            False if that changes nothing: the record is finished already, or no longer (or never was) ours.

        Raises:
            ValueError: this is no message id.
            SpoutClosed: it was closed, or never activated.
        """
        tuples = self._only or self._stream_of(message_id)
        acked = tuples is not None and tuples.ack(message_id)
        if self._announcements is not None:
            self._announcements.make()
        return acked

    def fail(self, message_id: str, reason: str | BaseException = "") -> bool:
        """Fail a delivery: the record comes again after its delay, or is given up after its last retry.

        Args:
            message_id: of the tuple.
            reason: a text for the dead letter, or an exception: ``Reject`` gives the record up at once, and
                ``RetryLater`` chooses the delay.

        Returns:
            False if that changes nothing: the delivery has ended already, or is no longer ours. A later
            delivery of the record is not touched.

        Raises:
            ValueError: this is no message id.
            SpoutClosed: it was closed, or never activated.
        """
        failure = failure_of(reason) if isinstance(reason, BaseException) else failure_saying(reason)
        tuples = self._only or self._stream_of(message_id)
        failed = tuples is not None and tuples.fail(message_id, failure)
        if self._announcements is not None:
            self._announcements.make()
        return failed

    def record(self, message_id: str) -> Record | None:
        """Return a copy of a tuple's record, as delivered last; None if it is finished, given up or unknown.

        Raises:
            ValueError: this is no message id.
            SpoutClosed: it was closed, or never activated.
        """
        tuples = self._only or self._stream_of(message_id)
        return None if tuples is None else tuples.record(message_id)

    def trace_span(self, message_id: str) -> "Span | None":
        """Return the OpenTelemetry span of a delivery under way, to make it current (``trace.use_span``).

        It ends with the ack or the fail. None: `tracing` is off, the record belongs to no sampled trace, or its
        delivery is over.

        Raises:
            ValueError: this is no message id.
            SpoutClosed: it was closed, or never activated.
        """
        tuples = self._only or self._stream_of(message_id)
        return None if tuples is None else tuples.span(message_id)

    def _stream_of(self, message_id: str) -> StreamTuples | None:
        """The stream that handed out a tuple; None if it is not read any more."""
        current = self._opened().current
        stream, slash, rest = message_id.partition("/")
        if not slash:
            raise ValueError(
                "expected a message id as next_tuple gives it, 'stream/shardId:sequence#epoch.attempt', got "
                f"{message_id[:200]!r}"
            )
        tuples = current.get(stream)
        if tuples is None:
            MessageId.parse(rest)
        return tuples

    # Observing

    @property
    def rate_wait_seconds(self) -> float:
        """The time for which the rates of deliveries let ``next_tuple`` give nothing; 0.0: they are not used up.

        Infinite while no shard is assigned to this member of an application that has a rate.
        """
        return min((tuples.rate_wait_seconds for tuples in self._opened().current.values()), default=0.0)

    @property
    def is_done(self) -> bool:
        """True if every shard is over, or the run has come up to its `until`: ``next_tuple`` gives no more.

        All that was handed out of this member's shards is finished, and that is stored.
        """
        return self._begun().is_done

    @property
    def gone(self) -> dict[str, BaseException]:
        """The deleted streams, each with the error that showed it. The spout looks for them again."""
        return {} if self._streams is None else dict(self._streams.gone)

    # Inside

    def _consumers(self) -> Mapping[str, Consumer]:
        current = self._begun().current.items()
        return {f"{name}/" * self._is_several: each.consumer for name, each in current}

    def _counted_before(self) -> Iterable[Counters]:
        return self._begun().past

    def _addressed(self, shard_ids: Collection[str]) -> list[tuple[Consumer, list[str]]]:
        self._opened()
        return super()._addressed(shard_ids)

    @property
    def _is_over(self) -> bool:
        return self._closed

    def _begun(self) -> StreamSet[StreamTuples]:
        """The streams, to look at: after the end as they were then."""
        if self._closed and self._parent is None and self._streams is not None:
            return self._streams
        return self._opened()

    def _opened(self) -> StreamSet[StreamTuples]:
        if self._closed:
            self._refuse_if_closed()
        if self._streams is None:
            raise SpoutClosed(
                "expected an open spout, got one that was not activated: call activate() or open()"
            )
        return self._streams

    def _leave_to_the_parent(self) -> None:
        """Refuse every call in a forked child: the threads, the session and what is in flight are the parent's."""
        self._parent = os.getppid()
        self._closed, self._active, self._only = True, False, None

    def _refuse_if_closed(self) -> None:
        if self._parent is not None:
            raise SpoutClosed(
                f"expected a spout that process {os.getpid()} opened, got one that its parent {self._parent} did; "
                "open one after the fork"
            )
        if self._closed:
            raise SpoutClosed("expected an open spout, got one that was closed: make another one to go on")


def _tracing_of(config: SpoutConfig) -> "ProcessTracing | None":
    if not config.tracing:
        return None
    from kinesis_spout.tracing import ProcessTracing  # noqa: PLC0415 - it needs an extra

    return ProcessTracing(application=config.app)


_open: Final = WeakSet[RecordSpout]()


def _leave_all_to_the_parent() -> None:
    for spout in list(_open):
        spout._leave_to_the_parent()  # noqa: SLF001 - of this module


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all_to_the_parent)
