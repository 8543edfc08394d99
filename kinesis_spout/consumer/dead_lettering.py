"""Writes dead letters; a record that was given up is finished only when its letter is durable."""

import logging
import threading
from collections.abc import Collection
from contextlib import AbstractContextManager
from time import monotonic
from typing import Any, Final

from kinesis_spout.consumer.counters import Counters, Figures
from kinesis_spout.consumer.ports import Ports
from kinesis_spout.dead_letters.log_lines import DeadLetterLines
from kinesis_spout.model.errors import DeadLetterError
from kinesis_spout.model.handler import RaisedAt, Reject
from kinesis_spout.model.logs import NO_EXCEPTION
from kinesis_spout.model.record import DeadLetter, Record
from kinesis_spout.settings import SpoutConfig
from shard_state import Exhausted, SequenceNumber, StateManager

LAST_LETTERS_SECONDS: Final = 90.0
"""Closing waits for the sink for so long: longer than a sink retries."""
_OVERHEAD_BYTES: Final = 500
"""The approximate size of a letter without its record's data."""

_log = logging.getLogger(__name__)


class DeadLettering:
    """The dead letters of one consumer that wait, the oldest first. Mutable.

    Call it under the consumer's lock, except ``write`` and ``write_the_last``, which take it. One thread at a time
    writes to the sink.
    """

    def __init__(
        self,
        config: SpoutConfig,
        ports: Ports,
        manager: StateManager,
        lock: AbstractContextManager[Any],
        *,
        counters: Counters,
        figures: Figures,
    ) -> None:
        self._config = config
        self._sink = ports.dead_letters
        self._clock = ports.clock
        self._manager = manager
        self._lock = lock
        self._counters = counters
        self._figures = figures
        self._lines = DeadLetterLines(
            _log,
            f"; `kinesis-spout dead-letters list --stream {config.stream} --app {config.app}` shows them",
        )
        self._letters: dict[tuple[str, SequenceNumber], DeadLetter] = {}
        """By shard and record."""
        self.size_bytes = 0
        self.sink_hangs = False
        """True if closing gave up on the sink: a thread is in it for ever."""

    def __len__(self) -> int:
        return len(self._letters)

    def add(self, exhausted: Exhausted, record: Record, error: str, raised: RaisedAt | None = None) -> None:
        """Queue the dead letter of a record that was given up."""
        self._counters.given_up += 1
        unraised = Reject.__name__ if exhausted.rejected else NO_EXCEPTION
        self._figures.gave_up(_reason(exhausted), unraised if raised is None else raised.exception)
        key = exhausted.shard_id, exhausted.sequence
        self._remove(key)
        self._letters[key] = letter = DeadLetter(
            application=self._config.app,
            stream=self._config.stream_name,
            shard_id=exhausted.shard_id,
            sequence_number=str(exhausted.sequence),
            partition_key=record.partition_key,
            arrival_timestamp=record.arrival_timestamp,
            data=record.data,
            attempts=exhausted.attempts,
            error=error,
            reason=_reason(exhausted),
            died_at=self._clock.time(),
            traceback=None if raised is None else raised.traceback,
            explicit_hash_key=record.explicit_hash_key,
        )
        self.size_bytes += _weight(letter)

    def drop_shards(self, shard_ids: Collection[str]) -> None:
        for key in [key for key in self._letters if key[0] in shard_ids]:
            self._remove(key)

    def _remove(self, key: tuple[str, SequenceNumber]) -> None:
        letter = self._letters.pop(key, None)
        if letter is not None:
            self.size_bytes -= _weight(letter)

    def write(self) -> None:
        """Write all letters that wait now. Raises what the sink raises; the letters then wait on."""
        with self._lock:
            letters = dict(self._letters)
        if not letters:
            self._lines.say(self._clock.monotonic())
            return
        self._sink.write(list(letters.values()))
        with self._lock:
            for key, letter in letters.items():
                # Another letter, or none: its shard was lost meanwhile. A later one must still be written.
                if self._letters.get(key) is letter:
                    self._remove(key)
                    self._manager.dead_lettered(*key, self._clock.monotonic())
            self._counters.dead_lettered += len(letters)
        self._lines.written(len(letters), self._clock.monotonic())

    def say_the_rest(self) -> None:
        """Log at the end what was not said yet of letters that are written."""
        self._lines.say()

    def write_the_last(self, writer: threading.Thread | None) -> None:
        """Write, after ``writer``, on a thread that can be abandoned if it hangs. Raises DeadLetterError."""
        failures: list[BaseException] = []

        def write() -> None:
            try:
                self.write()
            except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
                failures.append(error)

        until = monotonic() + LAST_LETTERS_SECONDS
        last = threading.Thread(target=write, name="kinesis-spout-last-letters", daemon=True)
        for thread in (writer, last):
            if thread is None:
                continue
            if thread is last:
                thread.start()
            thread.join(max(0.0, until - monotonic()))
            if thread.is_alive():
                # Only one thread may use a sink: no other one may call it any more, not even to close it.
                self.sink_hangs = True
                raise DeadLetterError(
                    f"expected the last {len(self)} dead letters to be written within "
                    f"{LAST_LETTERS_SECONDS:g} s, got no answer from the sink; their records come again"
                )
        if failures:
            raise failures[0]


def _reason(exhausted: Exhausted) -> str:
    if exhausted.expired:
        return "expired"
    return "rejected" if exhausted.rejected else "exhausted"


def _weight(letter: DeadLetter) -> int:
    return len(letter.data) + _OVERHEAD_BYTES
