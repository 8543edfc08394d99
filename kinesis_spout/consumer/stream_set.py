"""The streams that one spout reads now: opened together, found while it runs, each ended separately.

At the start all are opened or none: a wrong name is an error there, and one error names them all. A stream
that is deleted later ends alone, with an error in the log, while the others continue. The set looks for it
again, like for new streams of a pattern, and reads on when it comes back.

**Where a stream begins.** A named stream without progress begins at ``initial_position``. So does one that a
pattern finds if it existed when the application first began. A younger one can have been written to before it was
found, also while no process ran: under LATEST it is read from its oldest record, so that nothing of it is lost.

**When all is done.** When every stream that is read has come up to its end, and the set waits for no other. A
run with an `until` waits for none; without one a pattern can always find others. If the last stream is
deleted and the set waits for no other, nothing is done: that is an error. The same holds for the only stream
of a spout.
"""

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from kinesis_spout.consumer.consumer import Consumer, check_order
from kinesis_spout.consumer.counters import Counters
from kinesis_spout.consumer.open_streams import OpenStreams
from kinesis_spout.consumer.ports import Ports, StreamsPorts
from kinesis_spout.model.errors import KinesisSpoutError, StreamNotFound
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.grammar.stream_names import (
    is_pattern,
    is_younger,
    matching,
    name_of,
    nothing_found,
)

_OPENERS: Final = 8
"""Streams opened at a time: one takes a dozen sequential requests."""
_LOOK_SECONDS: Final = 0.25
"""The end of one of several streams is noticed within so long."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStream:
    stream: str
    """Name or ARN."""
    is_named: bool
    """By the setting; otherwise a pattern finds it."""

    @property
    def name(self) -> str:
        return name_of(self.stream)


class OneStream(Protocol):
    @property
    def consumer(self) -> Consumer: ...

    @property
    def is_done(self) -> bool:
        """True if the stream has come up to the end that its settings give it."""
        ...

    @property
    def error(self) -> BaseException | None:
        """The error that has ended the stream, if the set must act on it."""
        ...

    def close(self) -> None:
        """Stop, store the last progress, and close the stream's ports. May be called twice."""
        ...


T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S", bound=OneStream)


class StreamSet(OpenStreams[FoundStream, S]):
    """The readers of a door, one for each stream, by the stream's name. Mutable; thread-safe.

    Args:
        config: of all streams.
        ports: the outside world; closed with this.
        open_one: makes and starts what the door reads one stream with. Takes the ports over.
    """

    def __init__(
        self,
        config: SpoutConfig,
        ports: StreamsPorts,
        open_one: Callable[[SpoutConfig, Ports], S],
    ) -> None:
        super().__init__(lock=threading.Lock(), look_seconds=config.stream_list_interval_seconds)
        self._config = config
        self._ports = ports
        self._open_one = open_one
        self._complained_of: set[str] = set()
        self._to_close: list[S] = []
        """Guarded by the lock."""
        self._past: list[Counters] = []
        self._closed = threading.Event()
        self.error: BaseException | None = None
        """The error that has ended the whole set: one of a stream that no other can make good."""
        self._next_look_at = 0.0
        self._wake = threading.Event()
        self._watcher: threading.Thread | None = None

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    def await_closed(self, timeout: float | None) -> bool:
        return self._closed.wait(timeout)

    @property
    def past(self) -> Sequence[Counters]:
        return self._past

    @property
    def is_done(self) -> bool:
        """True if all streams have come up to the end of their settings, and no other is waited for."""
        current = self.current.values()
        if self.error is not None or self._waits_for_others or not current:
            return False
        return all(each.is_done for each in current)

    @property
    def _waits_for_others(self) -> bool:
        return any(map(is_pattern, self._config.streams)) and self._config.until is None

    # The start and the end

    def start(self) -> None:
        """Raises one KinesisSpoutError for all streams that cannot be opened, after closing everything."""
        try:
            self._open_all()
        except BaseException:
            self.close()
            raise
        self._next_look_at = self._ports.clock.monotonic() + self._look_seconds

    def watch(self, over: Callable[[], None] | None = None) -> None:
        """Start the thread that calls ``tend``, after ``start``.

        ``over`` is called once, on that thread, when ``error`` ends all of it, or all is done.
        """
        if over is None and not self._config.is_several:
            return
        self._watcher = threading.Thread(
            target=self._watch, args=(over,), name="kinesis-spout-streams", daemon=True
        )
        self._watcher.start()

    def close(self) -> None:
        """Stop all streams, then close what they share. Raises the first error. May be called twice."""
        with self._lock:
            is_first, self._is_closing = not self._is_closing, True
        if is_first:
            try:
                self._close()
            finally:
                self._closed.set()
        elif self._watcher is not threading.current_thread():
            self._closed.wait()

    def _close(self) -> None:
        self._wake.set()
        if self._watcher is not None and self._watcher is not threading.current_thread():
            self._watcher.join()
        with self._lock:
            left, self._to_close = [*self.current.values(), *self._to_close], []
        with ExitStack() as closing:
            closing.callback(self._ports.close)
            if left:
                for result in _of_all(_close_one, left):
                    if isinstance(result, BaseException):
                        raise result

    def _open_all(self) -> None:
        found = list(self._find().values())
        if not found:
            raise nothing_found("`stream`", self._config.streams)
        opened = _of_all(self._checked_ports, found)
        ports = {each.name: made for each, made in zip(found, opened, strict=True)}
        if any(isinstance(made, BaseException) for made in opened):
            for made in opened:
                if isinstance(made, Ports):
                    made.close_all()
            raise _together(ports)
        started = _of_all(lambda each: self._opened(each, ports[each.name]), found)  # type: ignore[arg-type]
        with self._lock:
            self.current = {
                each.name: made
                for each, made in zip(found, started, strict=True)
                if not isinstance(made, BaseException)
            }
        if len(self.current) < len(found):
            raise _together({each.name: made for each, made in zip(found, started, strict=True)})
        self._divide()

    def _checked_ports(self, found: FoundStream) -> Ports:
        """Open a stream's ports and check that it can be read, before anything is stored of any stream."""
        config = self._config.of_stream(found.stream)
        ports = self._ports.open(config)
        if not self._config.is_several:
            return ports  # its consumer handles that
        try:
            ports.lister.list_shards()
            if config.order == "key":
                check_order(config, ports.lister.summary())
        except BaseException:
            ports.close_all()
            raise
        return ports

    def _opened(self, found: FoundStream, ports: Ports) -> S:
        try:
            config = self._config_of(found, ports)
        except BaseException:
            ports.close_all()
            raise
        return self._open_one(config, ports)

    # Streams that come and go

    def end(self, name: str, error: BaseException) -> None:
        """Stop reading a stream that is gone. Any thread may call it; it does not wait.

        An only stream stays until all of it is closed: what is in flight of it can end, and is stored.
        """
        if self._config.is_several:
            self._end_one_of_several(name, error)
        else:
            self.fail(error)
        self._wake.set()

    def fail(self, error: BaseException) -> None:
        self.error = self.error or error

    def _end_one_of_several(self, name: str, error: BaseException) -> None:
        with self._lock:
            if name not in self.current:
                return
            self._to_close.append(self._left(name))
            self._say_gone(name, error)
            is_last = not self.current
        if is_last and not self._waits_for_others:
            self.fail(error)

    def tend(self) -> None:
        for name, made in self.current.items():
            error = made.error
            if isinstance(error, StreamNotFound):
                self.end(name, error)
            elif error is not None:
                self.fail(error)
        with self._lock:
            to_close, self._to_close = self._to_close, []
        for made in to_close:
            self._close_ended(made)
        if to_close:
            self._divide()
        if self._ports.clock.monotonic() >= self._next_look_at:
            self.open_new()
            self._next_look_at = self._ports.clock.monotonic() + self._look_seconds

    def _watch(self, over: Callable[[], None] | None) -> None:
        seconds = _LOOK_SECONDS if self._config.is_several else None
        while True:
            try:
                self.tend()
            except Exception as error:  # noqa: BLE001 - whatever ended the thread must reach the user
                self.fail(error)
            if self._is_closing or self.error is not None or self.is_done:
                break
            self._wake.wait(seconds)
            self._wake.clear()
        if not self._is_closing and over is not None:
            over()

    def look(self) -> None:
        self._wake.set()

    def _close_ended(self, made: S) -> None:
        self._past.append(made.consumer.counted())
        try:
            made.close()
        except KinesisSpoutError as error:
            _log.warning("after a stream had ended, its last progress could not be stored: %s", error)

    # The streams that there are

    def _find(self) -> Mapping[str, FoundStream]:
        """Return the named streams, whether they exist or not, then those that patterns find."""
        parts = self._config.streams
        found = {
            name_of(part): FoundStream(stream=part, is_named=True) for part in parts if not is_pattern(part)
        }
        for pattern in filter(is_pattern, parts):
            for stream in matching(pattern, self._ports.names(self._config.of_stream(pattern))):
                earlier = found.setdefault(name_of(stream), FoundStream(stream=stream, is_named=False))
                self._complain(pattern, stream, earlier)
        return found

    def _complain(self, pattern: str, stream: str, earlier: FoundStream) -> None:
        """Warn once of a second stream of a name, which is not read. A name and an ARN can mean one stream."""
        are_two = stream != earlier.stream and stream.startswith("arn:") and earlier.stream.startswith("arn:")
        if are_two and stream not in self._complained_of:
            self._complained_of.add(stream)
            _log.warning(
                "%s, which %s finds, is not read: %s has the same name, and progress is kept by name; read it "
                "with an application of its own",
                stream,
                pattern,
                earlier.stream,
            )

    def _config_of(self, found: FoundStream, ports: Ports) -> SpoutConfig:
        """Return the settings for a stream, with where it begins. Asks the store and Kinesis."""
        config = self._config.of_stream(found.stream)
        younger = self._config.of_stream(found.stream, begins_at_its_start=True)
        if found.is_named or younger == config:
            return config
        began, streams = self._ports.begun()
        if began is None or found.name in streams:
            return config
        return younger if is_younger(ports.lister.summary().created, began) else config

    def _open_late(self, found: FoundStream) -> S:
        return self._opened(found, self._checked_ports(found))

    def _joined(self, _name: str, _made: S) -> None:
        self._divide()

    def _refused(self, made: S) -> None:
        self._to_close.append(made)

    def _divide(self) -> None:
        streams = list(self.current.values())
        for made in streams:
            made.consumer.sharers = len(streams)


def _close_one(stream: OneStream) -> None:
    stream.close()


def _of_all(work: Callable[[T], R], items: Collection[T]) -> "list[R | BaseException]":
    """Do the work for several items at a time; the result of each, or the error it raised."""

    def tried(item: T) -> R | BaseException:
        try:
            return work(item)
        except BaseException as error:  # noqa: BLE001 - told together with the others
            return error

    if len(items) == 1:
        return [tried(item) for item in items]
    with ThreadPoolExecutor(min(_OPENERS, len(items)), "kinesis-spout-open") as threads:
        return list(threads.map(tried, items))


def _together(results: "Mapping[str, object]") -> BaseException:
    errors = {name: result for name, result in results.items() if isinstance(result, BaseException)}
    unexpected = [error for error in errors.values() if not isinstance(error, KinesisSpoutError)]
    first = next(iter(unexpected or errors.values()))
    if unexpected or len(errors) == 1:
        return first
    texts = "; ".join(f"{name}: {error}" for name, error in errors.items())
    together = type(first)(f"{len(errors)} of {len(results)} streams cannot be read: {texts}")
    together.__cause__ = first
    return together
