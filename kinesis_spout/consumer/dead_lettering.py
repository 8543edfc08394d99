"""Writes dead letters; a record that was given up is finished only when its letter is durable."""

import logging
import threading
from time import monotonic
from typing import Final

from kinesis_spout.consumer.consumer_state import ConsumerState
from kinesis_spout.model.errors import DeadLetterError
from kinesis_spout.model.handler import RaisedAt
from kinesis_spout.model.record import DeadLetter, Record
from shard_state import Exhausted

LAST_LETTERS_SECONDS: Final = 90.0
"""How long closing waits for the sink: longer than a sink retries."""

_log = logging.getLogger(__name__)


class DeadLettering:
    """Mutable; one thread at a time writes to the sink."""

    def __init__(self, state: ConsumerState) -> None:
        self._state = state
        self._sink = state.ports.dead_letters
        self._clock = state.ports.clock
        self.sink_hangs = False
        """Whether closing gave up on the sink: a thread is in it for ever."""

    def add(self, exhausted: Exhausted, record: Record, error: str, raised: RaisedAt | None = None) -> None:
        """Queue the dead letter of a record that was given up. Call under the lock."""
        self._state.counters.given_up += 1
        self._state.figures.gave_up(_reason(exhausted), "" if raised is None else raised.exception)
        letter = DeadLetter(
            application=self._state.config.app,
            stream=self._state.config.stream_name,
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
        self._state.letters.add((exhausted.shard_id, exhausted.sequence), letter)

    def write(self) -> None:
        """Write all letters that wait now. Raises what the sink raises; the letters then wait on."""
        with self._state.lock:
            letters = self._state.letters.copy()
        if not letters:
            return
        self._sink.write(list(letters.values()))
        with self._state.lock:
            for (shard_id, sequence), letter in letters.items():
                if self._state.letters.written((shard_id, sequence), letter):
                    self._state.manager.dead_lettered(shard_id, sequence, self._clock.monotonic())
            self._state.counters.dead_lettered += len(letters)
            in_all = self._state.counters.dead_lettered
        _log.info(
            "dead-lettered %d records, %d since the start; `kinesis-spout dead-letters list --stream %s --app %s` "
            "shows them",
            len(letters),
            in_all,
            self._state.config.stream,
            self._state.config.app,
        )

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
                    f"expected the last {len(self._state.letters)} dead letters to be written within "
                    f"{LAST_LETTERS_SECONDS:g} s, got no answer from the sink; their records come again"
                )
        if failures:
            raise failures[0]


def _reason(exhausted: Exhausted) -> str:
    if exhausted.expired:
        return "expired"
    return "rejected" if exhausted.rejected else "exhausted"
