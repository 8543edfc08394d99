"""Storm's verbs on several streams: a ``RecordSpout`` for each, asked in turn.

    orders/shardId-000000000000:49590338271490256608559692538361571095921575989136588898#2.1
    stream the message id that the stream's spout gave

So many calls of ``next_tuple`` as there are streams ask each of them once, and each gives one record at most: a
stream with a backlog holds up no other. A stream that had nothing rests for a moment, so that many idle ones cost
little.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from kinesis_spout.consumer.ports import Ports
from kinesis_spout.consumer.streams.joint_view import JointView, of_stream
from kinesis_spout.consumer.streams.stream_set import StreamSet
from kinesis_spout.consumer.streams.streams_ports import StreamsPorts
from kinesis_spout.kinesis import Prefetcher
from kinesis_spout.model.errors import SpoutClosed, StreamNotFound
from kinesis_spout.model.record import Record
from kinesis_spout.plain.listener import FailReason, SpoutListener
from kinesis_spout.plain.message_id import MessageId
from kinesis_spout.plain.record_spout import Emitted, RecordSpout
from kinesis_spout.settings import SpoutConfig
from shard_state import ShardStatus

_REST_SECONDS: Final = 0.001
"""How long a stream is not asked after it had nothing, for each stream there is: to ask costs 20 µs."""

MakeSpout = Callable[[SpoutConfig, Ports, SpoutListener, Prefetcher], RecordSpout]


class StreamSpouts:
    """The spouts of several streams. Mutable; thread-safe but for ``activate``. Its methods are ``RecordSpout``'s.

    Args:
        config: of all of them.
        ports: the outside world; closed with this.
        make: makes the spout of one stream, which reads ahead on the threads that all share.
        listener: is told what becomes of each record, by the ids that are handed out here.
    """

    def __init__(
        self, config: SpoutConfig, ports: StreamsPorts, make: MakeSpout, listener: SpoutListener
    ) -> None:
        self.clock = ports.clock
        self._make = make
        self._listener = listener
        self._active = True
        self._prefetcher = Prefetcher(clock=ports.clock)
        self._turns: deque[str] = deque()
        self._enrolled_of: Mapping[str, RecordSpout] = {}
        """Whose turns these are."""
        self._rests_until: dict[str, float] = {}
        self.streams = StreamSet(
            config,
            ports,
            open_one=self._open_one,
            close_one=RecordSpout.close,
            retired=self._retire,
            ended=_gone,
            share=RecordSpout.share_memory,
            is_done=_is_done,
        )
        self.view = JointView(self.streams)

    def _open_one(self, config: SpoutConfig, ports: Ports) -> RecordSpout:
        listener = _OfStream(config.stream_name, self._listener)
        spout = self._make(config, ports, listener, self._prefetcher)
        spout.activate()
        if not self._active:
            spout.deactivate()
        return spout

    def _retire(self, spout: RecordSpout) -> None:
        self.view.left(spout)

    def activate(self) -> None:
        """Go on handing out tuples."""
        self._active = True
        for spout in self.streams.current.values():
            spout.activate()

    def deactivate(self) -> None:
        """Hand out no more tuples until ``activate``."""
        self._active = False
        for spout in self.streams.current.values():
            spout.deactivate()

    def next_tuple(self) -> Emitted | None:
        """Give the next tuple of the next stream that has one.

        Raises:
            KinesisSpoutError: as ``RecordSpout.next_tuple``, of the stream whose turn it was; the next call serves
                the other streams. StreamNotFound: every stream is gone, and no pattern may find others.
        """
        spouts, now = self._enrolled(), self.clock.monotonic()
        for _ in range(len(self._turns)):
            name = self._turns[0]
            self._turns.rotate(-1)
            if self._rests_until.get(name, now) > now:
                continue
            try:
                emitted = spouts[name].next_tuple()
            except StreamNotFound as gone:
                self.streams.end(name, gone)
                continue
            except SpoutClosed:
                continue  # it has just ended
            if emitted is not None:
                return Emitted(f"{name}/{emitted.message_id}", emitted.values)
            self._rests_until[name] = now + _REST_SECONDS * len(spouts)
        if self.streams.error is not None:
            raise self.streams.error
        return None

    def _enrolled(self) -> Mapping[str, RecordSpout]:
        """Let every stream that is read now have its turn, and no other."""
        current = self.streams.current
        if current is not self._enrolled_of:
            kept = [name for name in self._turns if name in current]
            self._turns = deque(kept + [name for name in current if name not in kept])
            self._rests_until, self._enrolled_of = {}, current
        return current

    @property
    def is_done(self) -> bool:
        """Whether every stream is done, and no other is waited for; see ``StreamSet.is_done``."""
        return self.streams.is_done

    def ack(self, message_id: str) -> bool:
        """Finish a record."""
        spout, rest = self._addressed(message_id)
        return spout is not None and spout.ack(rest)

    def fail(self, message_id: str, reason: str | BaseException) -> bool:
        """Fail a delivery."""
        spout, rest = self._addressed(message_id)
        return spout is not None and spout.fail(rest, reason)

    def record(self, message_id: str) -> Record | None:
        """Give a copy of a tuple's record."""
        spout, rest = self._addressed(message_id)
        return None if spout is None else spout.record(rest)

    def _addressed(self, message_id: str) -> tuple[RecordSpout | None, str]:
        """Give the spout of a message id, None for a stream that is not read any more, and the id it gave.

        Raises:
            ValueError: this is no message id.
        """
        stream, slash, rest = message_id.partition("/")
        if not slash:
            raise ValueError(
                "expected a message id as next_tuple gives it, 'stream/shardId:sequence#epoch.attempt', got "
                f"{message_id[:200]!r}"
            )
        spout = self.streams.current.get(stream)
        if spout is None:
            MessageId.parse(rest)
        return spout, rest

    @property
    def rate_wait_seconds(self) -> float:
        """For how long the rates of deliveries let no stream give anything."""
        return min((spout.rate_wait_seconds for spout in self.streams.current.values()), default=0.0)

    @property
    def uncommitted(self) -> int:
        """How many records are finished and not stored as such."""
        return sum(spout.uncommitted for spout in self.streams.current.values())

    def status(self) -> list[ShardStatus]:
        """Describe every known shard, by ``stream/shardId``."""
        spouts = self.streams.current.items()
        return [shard for name, spout in spouts for shard in of_stream(name, spout.status())]

    def close(self) -> None:
        """Close every spout, and what they share."""
        try:
            self.streams.close()
        finally:
            self._prefetcher.close()


class _OfStream(SpoutListener):
    """Tells of the records of one stream by the ids that are handed out for several."""

    def __init__(self, stream: str, listener: SpoutListener) -> None:
        self._stream = stream
        self._listener = listener

    def emitted(self, message_id: str, attempt: int) -> None:
        self._listener.emitted(f"{self._stream}/{message_id}", attempt)

    def acked(self, message_id: str) -> None:
        self._listener.acked(f"{self._stream}/{message_id}")

    def failed(self, message_id: str, reason: FailReason, error: str, retry_in: float | None) -> None:
        self._listener.failed(f"{self._stream}/{message_id}", reason, error, retry_in)

    def exhausted(self, message_id: str, attempts: int, error: str) -> None:
        self._listener.exhausted(f"{self._stream}/{message_id}", attempts, error)


def _is_done(spout: RecordSpout) -> bool:
    try:
        return spout.is_done
    except SpoutClosed:
        return True  # it has just ended


def _gone(spout: RecordSpout) -> BaseException | None:
    """Give the error of a stream that is gone. Any other is raised by its spout's turn of ``next_tuple``."""
    error = spout.last_error
    return error if isinstance(error, StreamNotFound) else None
