"""The life of a plain-Python spout: new, then active or deactivated, in the end closed."""

from types import TracebackType
from typing import Self, Unpack

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.consumer.open_ports import open_ports
from kinesis_spout.consumer.ports import Ports
from kinesis_spout.kinesis import Prefetcher
from kinesis_spout.model.errors import InvalidConfig, SpoutClosed
from kinesis_spout.plain.buffered_shards import BufferedShards
from kinesis_spout.settings import SpoutConfig, SpoutSettings


class SpoutLife:
    """What a spout opens, and when. Mutable; thread-safe.

    It is *new* until ``activate`` (or ``open``), then active or deactivated, and in the end closed. A spout
    whose start failed is closed too; make another one to try again. The arguments are ``RecordSpout``'s.
    """

    def __init__(
        self,
        config: SpoutConfig | None,
        ports: Ports | None,
        prefetcher: Prefetcher | None,
        **settings: Unpack[SpoutSettings],
    ) -> None:
        if config is not None and settings:
            raise InvalidConfig(
                f"expected a config or settings, got both (settings: {', '.join(sorted(settings))}): "
                "put them into the config, or leave it out"
            )
        self.config = SpoutConfig.load(**settings) if config is None else config
        self._given_ports = ports
        self._prefetcher = prefetcher
        self._started: tuple[Consumer, BufferedShards] | None = None
        self._active = False
        self._closed = False

    def activate(self) -> None:
        """Begin to hand out tuples; after ``deactivate``, go on. Call it from one thread at a time.

        Raises:
            SpoutClosed: it was closed.
            KinesisSpoutError: the first start failed (see ``Consumer.start``); the spout is closed now.
        """
        self._refuse_if_closed()
        if self._started is None:
            try:
                self._start()
            except BaseException:
                self._closed = True
                raise
        self._active = True

    def deactivate(self) -> None:
        """Hand out no more tuples until ``activate``. Acks, fails, time-outs and commits go on."""
        self._opened()
        self._active = False

    def open(self) -> Self:
        """Activate, and give this spout, for ``with`` and for iteration."""
        self.activate()
        return self

    def close(self) -> None:
        """Store what is finished, give the shards up, and close all that was opened. May be called twice.

        What is in flight comes again at the next start, if the guarantee is at_least_once.

        Raises:
            KinesisSpoutError: the last dead letters or progress could not be stored. Everything is closed
                all the same, and nothing is lost: the records concerned come again.
        """
        if self._closed:
            return
        self._closed, self._active = True, False
        if self._started is not None:
            consumer, shards = self._started
            with consumer.lock:
                shards.stop()
            try:
                consumer.close()
            finally:
                shards.close()
        elif self._given_ports is not None:
            self._given_ports.dead_letters.close()
            self._given_ports.coordinator.close()
            self._given_ports.close()

    def __repr__(self) -> str:
        if self._closed:
            state = "closed"
        elif self._started is None:
            state = "new"
        else:
            state = "active" if self._active else "deactivated"
        name, config = type(self).__name__, self.config
        return f"{name}(stream={config.stream!r}, app={config.app!r}, state={state!r})"

    def __enter__(self) -> Self:
        """Give this spout; ``with`` closes it. Entering does not activate it: ``open`` does."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Inside

    def _start(self) -> None:
        if self.config.is_several:
            raise InvalidConfig(
                f"stream: expected one stream here, got {self.config.stream!r}: KinesisSpout reads several"
            )
        consumer, shards = self._new_parts(self._given_ports or open_ports(self.config))
        try:
            consumer.start(shards)
        except BaseException:
            try:
                consumer.close(commit=False)
            finally:
                shards.close()
            raise
        self._started = consumer, shards

    def _new_parts(self, ports: Ports) -> tuple[Consumer, BufferedShards]:
        consumer = Consumer(self.config, ports, message_timeout_seconds=self.config.message_timeout_seconds)
        return consumer, BufferedShards(consumer, self._prefetcher)

    def _opened(self) -> tuple[Consumer, BufferedShards]:
        self._refuse_if_closed()
        if self._started is None:
            raise not_activated()
        return self._started

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise SpoutClosed("expected an open spout, got one that was closed: make another one to go on")


def not_activated() -> SpoutClosed:
    """Give the error of a spout that was not activated."""
    return SpoutClosed("expected an open spout, got one that was not activated: call activate() or open()")
