"""The plain-Python door for one stream or several: one stream's spout as it is, or those of several as one.

spout = StreamsSpout(stream=["orders", "refunds", "returns-*"], app="billing")
"""

from collections.abc import Callable
from typing import Any, Unpack

from kinesis_spout.consumer.counters import Counters
from kinesis_spout.consumer.ports import Ports
from kinesis_spout.consumer.streams.joint_ports import JointPorts
from kinesis_spout.consumer.streams.streams_ports import StreamsPorts
from kinesis_spout.kinesis import Prefetcher
from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.model.record import Record
from kinesis_spout.plain.listener import SpoutListener
from kinesis_spout.plain.record_spout import Emitted, RecordSpout
from kinesis_spout.plain.spout_life import not_activated
from kinesis_spout.plain.stream_spouts import StreamSpouts
from kinesis_spout.settings import SpoutConfig, SpoutSettings
from shard_state import BreakerPause, ShardStatus


class StreamsSpout(RecordSpout):
    """A spout of one application on one stream or several. Mutable; thread-safe.

    With several, ``next_tuple`` serves the streams in turn, and a message id begins with its stream and a slash.
    What is counted is the sum. A stream that is deleted ends alone. All else is as in ``RecordSpout``.

    Args:
        config: as ``RecordSpout``.
        ports: what to use instead of Kinesis and ZooKeeper; of several streams, what opens each one's.
        scheme: as ``RecordSpout``.
        listener: as ``RecordSpout``.
        settings: as ``RecordSpout``.
    """

    def __init__(
        self,
        config: SpoutConfig | None = None,
        *,
        ports: Ports | StreamsPorts | None = None,
        scheme: str | Callable[[Record], Any] = "raw",
        listener: SpoutListener | None = None,
        **settings: Unpack[SpoutSettings],
    ) -> None:
        of_one = ports if isinstance(ports, Ports) else None
        super().__init__(config, ports=of_one, scheme=scheme, listener=listener, **settings)
        if ports is not None and self.config.is_several is isinstance(ports, Ports):
            raise InvalidConfig(
                f"expected ports of {'several streams' if self.config.is_several else 'one stream'} for stream="
                f"{self.config.stream!r}, got {type(ports).__name__}"
            )
        self._given_streams_ports = None if ports is None or isinstance(ports, Ports) else ports
        self._streams: StreamSpouts | None = None

    @property
    def gone(self) -> dict[str, BaseException]:
        """The streams that are deleted, and how that was noticed. They are looked for again."""
        return {} if self._streams is None else dict(self._streams.streams.gone)

    # Life

    def _start(self) -> None:
        if not self.config.is_several:
            super()._start()
            return
        ports = self._given_streams_ports or JointPorts(self.config)
        streams = self._streams_of(ports)
        try:
            streams.streams.start()
        except BaseException:
            streams.close()
            raise
        self._watch(streams)
        self._streams = streams

    def _watch(self, streams: StreamSpouts) -> None:
        streams.streams.watch()

    def _streams_of(self, ports: StreamsPorts) -> StreamSpouts:
        return StreamSpouts(self.config, ports, self._spout_of_one, self._listener)

    def _spout_of_one(
        self, config: SpoutConfig, ports: Ports, listener: SpoutListener, prefetcher: Prefetcher
    ) -> RecordSpout:
        return RecordSpout(config, ports=ports, scheme=self._scheme, listener=listener, prefetcher=prefetcher)

    def activate(self) -> None:
        """Begin to hand out tuples; after ``deactivate``, go on. See ``RecordSpout``."""
        if self._streams is None:
            super().activate()
            return
        self._refuse_if_closed()
        self._streams.activate()
        self._active = True

    def deactivate(self) -> None:
        """Hand out no more tuples until ``activate``."""
        if not self.config.is_several:
            super().deactivate()
            return
        self._all.deactivate()
        self._active = False

    def close(self) -> None:
        """Store what is finished, give the shards up, and close all that was opened. May be called twice."""
        if self._streams is None:
            if self._given_streams_ports is not None and not self._closed:
                self._given_streams_ports.close()
            super().close()
            return
        if not self._closed:
            self._closed, self._active = True, False
            self._streams.close()

    # Tuples

    def next_tuple(self) -> Emitted | None:
        """Give the next tuple, of the next stream that has one; see ``RecordSpout``.

        Raises:
            KinesisSpoutError: with several streams it is that of one, and the next call serves the others.
                StreamNotFound: the stream is deleted; or all are, and no pattern may find others.
        """
        if not self.config.is_several:
            return super().next_tuple()
        streams = self._all
        return streams.next_tuple() if self._active else None

    @property
    def is_done(self) -> bool:
        """Whether every stream is over, or came up to its `until`; see ``RecordSpout``."""
        return self._all.is_done if self.config.is_several else super().is_done

    def ack(self, message_id: str) -> bool:
        """Finish a record; see ``RecordSpout``."""
        return self._all.ack(message_id) if self.config.is_several else super().ack(message_id)

    def fail(self, message_id: str, reason: str | BaseException = "") -> bool:
        """Fail a delivery; see ``RecordSpout``."""
        if self.config.is_several:
            return self._all.fail(message_id, reason)
        return super().fail(message_id, reason)

    # The circuit breaker, of each stream by itself

    @property
    def breaker_pause(self) -> BreakerPause | None:
        """The state of a pause, of the first stream that has one; see ``RecordSpout``."""
        return self._all.view.breaker_pause if self.config.is_several else super().breaker_pause

    def resume(self) -> bool:
        """End the pauses now; False if there is none."""
        return self._all.view.resume() if self.config.is_several else super().resume()

    # Pauses by an operator

    def pause_shards(self, *shard_ids: str) -> None:
        """Pause shards for all members; of several streams as ``stream/shardId``. See ``RecordSpout``."""
        if self.config.is_several:
            self._all.view.pause_shards(shard_ids)
        else:
            super().pause_shards(*shard_ids)

    def resume_shards(self, *shard_ids: str) -> bool:
        """End such pauses; see ``RecordSpout``."""
        if self.config.is_several:
            return self._all.view.resume_shards(shard_ids)
        return super().resume_shards(*shard_ids)

    @property
    def paused_shards(self) -> frozenset[str]:
        """The shards that an operator has paused; of several streams as ``stream/shardId``."""
        return self._all.view.paused_shards if self.config.is_several else super().paused_shards

    # Looking in

    @property
    def failures(self) -> dict[str, int]:
        """How often tuples were failed with each kind of exception; see ``RecordSpout``."""
        return self._all.view.failures if self.config.is_several else super().failures

    def record(self, message_id: str) -> Record | None:
        """Give a copy of a tuple's record; see ``RecordSpout``."""
        return self._all.record(message_id) if self.config.is_several else super().record(message_id)

    @property
    def counters(self) -> Counters:
        """What happened since the start, on all streams, as a copy."""
        return self._all.view.counters if self.config.is_several else super().counters

    @property
    def rate_wait_seconds(self) -> float:
        """For how long ``next_tuple`` gives nothing because of the rates of deliveries; see ``RecordSpout``."""
        return self._all.rate_wait_seconds if self.config.is_several else super().rate_wait_seconds

    @property
    def uncommitted(self) -> int:
        """How many records are finished and not stored as such; see ``RecordSpout``."""
        return self._all.uncommitted if self.config.is_several else super().uncommitted

    def status(self) -> list[ShardStatus]:
        """Describe every known shard, parents before children; of several streams as ``stream/shardId``."""
        return self._all.status() if self.config.is_several else super().status()

    @property
    def last_error(self) -> Exception | None:
        """An error that is being retried now; of several streams, the first one's."""
        return self._all.view.last_error if self.config.is_several else super().last_error

    @property
    def _clock(self) -> Clock:
        return self._all.clock if self.config.is_several else super()._clock

    @property
    def _all(self) -> StreamSpouts:
        self._refuse_if_closed()
        if self._streams is None:
            raise not_activated()
        return self._streams
