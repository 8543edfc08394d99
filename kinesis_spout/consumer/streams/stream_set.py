"""The streams that one spout reads now: opened together, found while it runs, and ended each by itself.

All are opened at the start or none: a wrong name is an error there, and one error names them all. Later a stream
that is gone ends alone, with an error in the log, and the others go on. It is looked for again, like the streams
that a pattern may find, so that one that comes back is read on.

**When all is done.** When every stream that is read has come up to its end, and no other is waited for. A run with
an `until` waits for none; without one a pattern may find others for ever. Where the last stream is deleted and no
other is waited for, nothing is done: that is an error.
"""

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final, Generic, TypeVar

from kinesis_spout.consumer.ports import Ports
from kinesis_spout.consumer.streams.found_streams import FoundStream, FoundStreams
from kinesis_spout.consumer.streams.streams_ports import StreamsPorts, close_ports
from kinesis_spout.model.errors import KinesisSpoutError, StreamNotFound
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.grammar.streams import nothing_found

T = TypeVar("T")
R = TypeVar("R")

_OPENERS: Final = 8
"""So many streams are opened at a time: to open one is a dozen requests, one after another."""
_LOOK_SECONDS: Final = 0.25
"""How soon it is noticed that a stream has ended."""

_log = logging.getLogger(__name__)


class StreamSet(Generic[T]):
    """What a door made of each stream, by the stream's name. Mutable; thread-safe.

    Args:
        config: of all streams.
        ports: the outside world; closed with this.
        open_one: makes of one stream what the door reads it with, and starts it. Takes the ports over.
        close_one: stops it, and closes its ports.
        retired: called before that with what was made of a stream that is gone while others are read.
        ended: gives the error that a stream has ended with; None while it has not.
        share: told how many streams there are now, so that each has its share of what all have together.
        is_done: tells whether a stream has come up to the end that its settings give it.
        over: called once, on the thread that watches, when ``error`` ends all of it, or all is done.
    """

    def __init__(
        self,
        config: SpoutConfig,
        ports: StreamsPorts,
        *,
        open_one: Callable[[SpoutConfig, Ports], T],
        close_one: Callable[[T], None],
        retired: Callable[[T], None],
        ended: Callable[[T], BaseException | None],
        share: Callable[[T, int], None],
        is_done: Callable[[T], bool],
        over: Callable[[], None] = lambda: None,
    ) -> None:
        self._config = config
        self._ports = ports
        self._open_one = open_one
        self._close_one = close_one
        self._retired = retired
        self._ended = ended
        self._share = share
        self._is_done = is_done
        self._over = over
        self._found = FoundStreams(config, ports)
        self._lock = threading.Lock()
        """Guards the three below."""
        self._current: dict[str, T] = {}
        self._to_close: list[T] = []
        self._closed = False
        self.gone: Mapping[str, BaseException] = {}
        """The streams that have ended, and why; they are looked for again."""
        self.error: BaseException | None = None
        """What has ended all of it: an error of one stream that no other can make good."""
        self._told: dict[str, str] = {}
        """Why a stream could not be opened, as it was logged."""
        self._look_at = 0.0
        self._wake = threading.Event()
        self._watcher: threading.Thread | None = None

    @property
    def current(self) -> Mapping[str, T]:
        """Those that are read now, or were at the end, by name. What is given does not change any more."""
        return self._current

    @property
    def is_done(self) -> bool:
        """Whether all streams have come up to the end that their settings give, and no other is waited for."""
        current = self._current
        return not self._waits_for_others and bool(current) and all(map(self._is_done, current.values()))

    @property
    def _waits_for_others(self) -> bool:
        """Whether streams that a pattern may find later are part of it."""
        return self._found.has_patterns and self._config.until is None

    # The start and the end

    def start(self) -> None:
        """Open every stream.

        Raises:
            KinesisSpoutError: one error for all that cannot be opened. Everything is closed then.
        """
        try:
            self._open_all()
        except BaseException:
            self.close()
            raise
        self._look_at = self._ports.clock.monotonic() + self._config.stream_list_interval_seconds

    def watch(self) -> None:
        """Have a thread ``tend`` to those that come and go. Called after ``start``."""
        self._watcher = threading.Thread(target=self._watch, name="kinesis-spout-streams", daemon=True)
        self._watcher.start()

    def close(self) -> None:
        """Stop every stream, all at a time, and close what they share. May be called twice.

        Raises:
            KinesisSpoutError: what the first of them that could not store its last progress raised.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._wake.set()
        if self._watcher is not None and self._watcher is not threading.current_thread():
            self._watcher.join()
        with self._lock:
            left, self._to_close = [*self._current.values(), *self._to_close], []
        with ExitStack() as closing:
            closing.callback(self._ports.close)
            if left:
                _raise_first(_of_all(self._close_one, left))

    def _open_all(self) -> None:
        found = self._found.find()
        if not found:
            raise nothing_found("`stream`", self._config.streams)
        opened = _of_all(self._checked_ports, found)
        ports = {each.name: made for each, made in zip(found, opened, strict=True)}
        if any(isinstance(made, BaseException) for made in opened):
            for made in opened:
                if isinstance(made, Ports):
                    close_ports(made)
            raise _together(ports)
        started = _of_all(lambda each: self._opened(each, ports[each.name]), found)  # type: ignore[arg-type]
        with self._lock:
            self._current = {
                each.name: made
                for each, made in zip(found, started, strict=True)
                if not isinstance(made, BaseException)
            }
        if len(self._current) < len(found):
            raise _together({each.name: made for each, made in zip(found, started, strict=True)})
        self._divide()

    def _checked_ports(self, found: FoundStream) -> Ports:
        """Open the ports of a stream, and see that it can be read, before anything is stored of any stream."""
        ports = self._ports.open(self._config.of_stream(found.stream))
        try:
            ports.lister.list_shards()
        except BaseException:
            close_ports(ports)
            raise
        return ports

    def _opened(self, found: FoundStream, ports: Ports) -> T:
        try:
            config = self._found.config_of(found, ports)
        except BaseException:
            close_ports(ports)
            raise
        return self._open_one(config, ports)

    # What comes and goes

    def end(self, name: str, error: BaseException) -> None:
        """Read a stream no more, for it is gone. May be called on any thread, and does not wait."""
        with self._lock:
            gone = self._current.get(name)
            if gone is None:
                return
            self._current = {each: made for each, made in self._current.items() if each != name}
            self._to_close.append(gone)
            self.gone = {**self.gone, name: error}
            is_last = not self._current
        _log.error(
            "stream %s has ended: %s. The other streams are read on; it is looked for every %g s",
            name,
            error,
            self._config.stream_list_interval_seconds,
        )
        if is_last and not self._waits_for_others:
            self.error = error
        self._wake.set()

    def tend(self) -> None:
        """Take in which streams have ended; close those; look for others if it is time."""
        for name, made in self.current.items():
            error = self._ended(made)
            if isinstance(error, StreamNotFound):
                self.end(name, error)
            elif error is not None:
                self.error = self.error or error
        with self._lock:
            to_close, self._to_close = self._to_close, []
        for made in to_close:
            self._close_ended(made)
        if to_close:
            self._divide()
        if self._ports.clock.monotonic() >= self._look_at:
            self._look()
            self._look_at = self._ports.clock.monotonic() + self._config.stream_list_interval_seconds

    def _watch(self) -> None:
        while not self._closed and self.error is None and not self.is_done:
            try:
                self.tend()
            except Exception as error:  # noqa: BLE001 - whatever ended the thread must reach the user
                self.error = self.error or error
                break
            self._wake.wait(_LOOK_SECONDS)
            self._wake.clear()
        if not self._closed:
            self._over()

    def _close_ended(self, made: T) -> None:
        try:
            self._retired(made)
            self._close_one(made)
        except KinesisSpoutError as error:
            _log.warning("after a stream had ended, its last progress could not be stored: %s", error)

    def _look(self) -> None:
        """Open the streams that are not read and are there."""
        try:
            wanted = [each for each in self._found.find() if each.name not in self.current]
        except KinesisSpoutError as error:
            self._tell("", f"streams cannot be listed now: {error}")
            return
        self._told.pop("", None)
        for found in wanted:
            if self._closed:
                return
            self._open_late(found)

    def _open_late(self, found: FoundStream) -> None:
        """Open a stream while others are read. What keeps it from that is logged, and it is tried again."""
        name = found.name
        try:
            made = self._opened(found, self._checked_ports(found))
        except KinesisSpoutError as error:
            if name not in self.gone or not isinstance(error, StreamNotFound):
                self._tell(name, f"stream {name} cannot be read yet: {error}")
            return
        with self._lock:
            if self._closed:
                self._to_close.append(made)
                return
            self._current = {**self._current, name: made}
            self.gone = {each: why for each, why in self.gone.items() if each != name}
        self._told.pop(name, None)
        _log.info("stream %s is read from now on", name)
        self._divide()

    def _tell(self, what: str, message: str) -> None:
        if self._told.get(what) != message:
            self._told[what] = message
            _log.error("%s; it is tried again every %g s", message, self._config.stream_list_interval_seconds)

    def _divide(self) -> None:
        streams = list(self.current.values())
        for made in streams:
            self._share(made, len(streams))


def _of_all(work: Callable[[T], R], items: Collection[T]) -> "list[R | BaseException]":
    """Do the work for each item, several at a time; give what came of it, or what it raised."""

    def tried(item: T) -> R | BaseException:
        try:
            return work(item)
        except BaseException as error:  # noqa: BLE001 - told together with the others
            return error

    with ThreadPoolExecutor(min(_OPENERS, len(items)), "kinesis-spout-open") as threads:
        return list(threads.map(tried, items))


def _raise_first(results: "list[R | BaseException]") -> None:
    for result in results:
        if isinstance(result, BaseException):
            raise result


def _together(results: "Mapping[str, object]") -> BaseException:
    """Give one error for all streams that cannot be read, of the kind of the first."""
    errors = {name: result for name, result in results.items() if isinstance(result, BaseException)}
    unexpected = [error for error in errors.values() if not isinstance(error, KinesisSpoutError)]
    first = next(iter(unexpected or errors.values()))
    if unexpected or len(errors) == 1:
        return first
    texts = "; ".join(f"{name}: {error}" for name, error in errors.items())
    together = type(first)(f"{len(errors)} of {len(results)} streams cannot be read: {texts}")
    together.__cause__ = first
    return together
