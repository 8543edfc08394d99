"""Conducts the demo once everything is there: kills the consumer, starts it again, and keeps the books."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, Self

from examples.demo.consumer import dead_letter_directory, ledger_directory
from examples.demo.display import Display, Snapshot
from examples.demo.flights import flight_id
from examples.demo.ledger import Ledger
from examples.demo.processes.consumer_process import ConsumerProcess
from examples.demo.producer import Producer
from examples.demo.summary import Kill, Tally, tally
from kinesis_spout.dead_letter import DeadLetter
from kinesis_spout.dead_letters.json_lines import JsonLinesSink

KILLS_END: Final = 0.8
"""The share of the records before which all kills come; the producer holds back the others until then."""

_LOOK_SECONDS: Final = 0.1
_LETTERS_SECONDS: Final = 0.5
_STALLED_SECONDS: Final = 30.0
"""A consumer that has nothing in hand for so long, while records have no end, does not know of them."""
_SETTLED_SECONDS: Final = 3.0
"""How long the consumer works before it is killed, so that it has committed something."""
_EXAMPLES: Final = 3


class Conductor:
    """Runs the consumer over its kills to the end. Mutable. A context manager: nothing outlives it.

    Args:
        directory: the demo's.
        records: how many there will be.
        kills: how often the consumer is killed.
        producer: started, and ended by its owner.
        start_consumer: starts the consumer, given which start it is.
        events: what the producer has to tell.
        display: is shown everything.
    """

    def __init__(
        self,
        *,
        directory: Path,
        records: int,
        kills: int,
        producer: Producer,
        start_consumer: Callable[[int], ConsumerProcess],
        events: "SimpleQueue[str]",
        display: Display,
    ) -> None:
        self._records = records
        self._kills_wanted = kills
        self._producer = producer
        self._start_consumer = start_consumer
        self._events = events
        self._display = display
        self._sink = JsonLinesSink(dead_letter_directory(directory))
        self.ledger = Ledger(ledger_directory(directory))
        self.letters: dict[int, DeadLetter] = {}
        self.kills: list[Kill] = []
        self._killed_at = 0.0
        self._working_since: float | None = None
        """When this run of the consumer was first seen at work."""
        self._letters_read_at = 0.0
        self._progress = (0, time.monotonic())
        """How many records had their end, and when the consumer last had something to do."""
        self._moving = False
        """Whether records came to their end between the last two looks."""
        self._phase = "starting Spark"
        self._consumer = start_consumer(1)
        display.event(f"starting the consumer (pid {self._consumer.pid}): Spark needs some seconds")

    def run(self, deadline: float) -> str | None:
        """Go on until every record has its end.

        Returns:
            What is missing, if it did not come to that by the monotonic time ``deadline``.

        Raises:
            KinesisSpoutError: the producer or the consumer failed.
        """
        if self._kills_wanted == 0:
            self._producer.release()
        while not self._done():
            missing = self._given_up(deadline)
            if missing is not None:
                self._read_all()
                return missing
            if self._kill_is_due():
                self._kill()
            time.sleep(_LOOK_SECONDS)
            self._look()
        self._display.event("every record has its end: stopping the consumer")
        self._consumer.stop()
        self._read_all()
        return None

    def tally(self) -> Tally:
        """Balance the books."""
        return tally(self._producer.produced, self.ledger.handled, self.letters)

    def examples(self) -> Sequence[DeadLetter]:
        """Choose some dead letters to show: of each reason one, then more."""
        by_reason = {letter.reason: letter for letter in self.letters.values()}
        others = [letter for letter in self.letters.values() if letter not in by_reason.values()]
        return [*by_reason.values(), *others][:_EXAMPLES]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.kill(self._workers())

    def _look(self) -> None:
        self._producer.check()
        self._consumer.check()
        self._read()
        status = self._consumer.status()
        if self._working_since is None and self._consumer.run in self.ledger.workers:
            self._working_since = time.monotonic()
            self._note_resumption(status.spark_seconds)
        self._moving = self._finished != self._progress[0]
        # Spark may take long to start; only a consumer that runs and idles has nothing more to give.
        if self._moving or status.spark_seconds is None or status.in_flight or status.waiting:
            self._progress = self._finished, time.monotonic()
        if status.spark_seconds is not None:
            self._phase = "consuming" if not self._producer.finished else "finishing"
        self._display.update(
            Snapshot(
                phase=self._phase,
                records=self._records,
                produced=self._producer.produced,
                acked=len(self.ledger.handled),
                dead_lettered=len(self.letters),
                retries=self.ledger.retries,
                open_shards=self._producer.open_shards,
            )
        )

    def _read(self) -> None:
        for text in _told(self._events):
            self._display.event(text)
        self.ledger.read()
        if time.monotonic() - self._letters_read_at >= _LETTERS_SECONDS:
            self._read_letters()

    def _read_letters(self) -> None:
        self.letters = {flight_id(letter.data): letter for letter in self._sink.read()}
        self._letters_read_at = time.monotonic()

    def _read_all(self) -> None:
        self._read()
        self._read_letters()

    @property
    def _finished(self) -> int:
        return len(self.ledger.handled) + len(self.letters)

    @property
    def _unfinished(self) -> int:
        return max(0, self._producer.produced - self._finished)

    def _done(self) -> bool:
        return (
            self._producer.finished
            and len(self.kills) == self._kills_wanted
            and self._finished >= self._records
            and not self.tally().lost
        )

    def _given_up(self, deadline: float) -> str | None:
        now = time.monotonic()
        if now >= deadline:
            return (
                f"by the time-out {self._producer.produced:,} of {self._records:,} records were produced, "
                f"{self._unfinished:,} of these had no end, and {len(self.kills)} of {self._kills_wanted} kills "
                "were made; a slow machine needs a longer --timeout"
            )
        if self._producer.finished and now - self._progress[1] >= _STALLED_SECONDS:
            error = self._consumer.status().error
            trouble = "" if error is None else f"; its newest error: {error}"
            return (
                f"for {_STALLED_SECONDS:g} s the consumer had nothing left to do, while "
                f"{self._unfinished:,} records had no end{trouble}"
            )
        return None

    # Kills

    def _kill_is_due(self) -> bool:
        done, since = len(self.kills), self._working_since
        if done == self._kills_wanted or since is None or time.monotonic() - since < _SETTLED_SECONDS:
            return False
        if self._finished < self._records * KILLS_END * (done + 1) / (self._kills_wanted + 1):
            return False
        if self._unfinished == 0:
            # Nothing is in flight that a kill could hit: let there be more, unless this was all.
            self._producer.release()
            return self._producer.finished
        return self._moving

    def _kill(self) -> None:
        pid = self._consumer.pid
        self._consumer.kill(self._workers())
        self._killed_at = time.monotonic()
        self._read()
        self.kills.append(Kill(pid=pid, unfinished=self._unfinished))
        self._display.event(f"killed the consumer (pid {pid}) with {self._unfinished:,} records unfinished")
        self._consumer = self._start_consumer(self._consumer.run + 1)
        self._working_since = None
        self._phase = "resuming: starting Spark"
        self._display.event(f"started it again (pid {self._consumer.pid})")
        if len(self.kills) == self._kills_wanted:
            self._producer.release()

    def _workers(self) -> Iterable[int]:
        return self.ledger.workers.get(self._consumer.run, ())

    def _note_resumption(self, spark_seconds: float | None) -> None:
        if not self.kills:
            return
        resumed_seconds = round(time.monotonic() - self._killed_at, 1)
        spark_seconds = None if spark_seconds is None else round(spark_seconds, 1)
        self.kills[-1] = replace(self.kills[-1], resumed_seconds=resumed_seconds, spark_seconds=spark_seconds)
        self._display.event(f"resumed {resumed_seconds:.1f} s after the kill")


def _told(events: "SimpleQueue[str]") -> Iterable[str]:
    while True:
        try:
            yield events.get_nowait()
        except Empty:
            return
