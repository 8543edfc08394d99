"""Conducts the demo once everything is there: consumers that join, are killed and started again; and the books."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, Self

from examples.demo.consumers.settings import ConsumerStatus, dead_letter_directory, ledger_directory
from examples.demo.display import Display, Snapshot
from examples.demo.flights import flight_id
from examples.demo.ledger import Delivery, Ledger
from examples.demo.milestones import Join, Kill, Milestones
from examples.demo.processes.consumer_process import ConsumerProcess
from examples.demo.producer import Producer
from examples.demo.summary import Tally, tally
from kinesis_spout import DeadLetter
from kinesis_spout.dead_letters import JsonLinesSink

HELD_AT: Final = 0.5
"""The share of the records that is put before the second consumer has its shards. After that and after each kill,
when all have their shards again, there is more: so that there is something to do for each."""
_KILLS_END: Final = 0.8
"""The share of the records that is finished before the last kill, and a part of it before each other one."""

_LOOK_SECONDS: Final = 0.1
_LETTERS_SECONDS: Final = 0.5
_STALLED_SECONDS: Final = 30.0
"""Consumers that have nothing in hand for so long, while records have no end, do not know of them."""
_ALONE_SECONDS: Final = 1.0
"""How long the consumer on Spark works before the second one joins."""
_SETTLED_SECONDS: Final = 3.0
"""How long the consumer on Spark works before it is killed, so that it has committed something."""
_EXAMPLES: Final = 3


class Conductor:
    """Runs the consumers over the kills to the end. Mutable. A context manager: nothing outlives it.

    Args:
        directory: the demo's.
        records: how many there will be.
        kills: how often the consumer on Spark is killed.
        producer: started, and ended by its owner.
        start_consumer: starts a consumer, given its module and which start of a consumer it is.
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
        start_consumer: Callable[[str, int], ConsumerProcess],
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
        self._milestones = Milestones()
        self._working_since: float | None = None
        """When this run of the consumer on Spark was first seen at work."""
        self._letters_read_at = 0.0
        self._progress = (0, time.monotonic())
        """How many records had their end, and when a consumer last had something to do."""
        self._moving = False
        """Whether records came to their end between the last two looks."""
        self._runs_on = False
        """Whether every record has its end, and it goes on all the same."""
        self._phase = "starting Spark"
        self._spark = start_consumer("on_spark", 1)
        self._second: ConsumerProcess | None = None
        display.event(f"starting the consumer (pid {self._spark.pid}): Spark needs some seconds")

    def run(self, deadline: float) -> str | None:
        """Go on until every record has its end.

        Returns:
            What is missing, if it did not come to that by the monotonic time ``deadline``.

        Raises:
            KinesisSpoutError: the producer or the consumer failed.
        """
        while not self._done():
            missing = self._given_up(deadline)
            if missing is not None:
                self._read_all()
                return missing
            if self._second_is_due():
                self._start_second()
            if self._kill_is_due():
                self._kill()
            time.sleep(_LOOK_SECONDS)
            self._look()
        self._display.event("every record has its end")
        return None

    def run_on(self, text: str) -> None:
        """Show this, and go on until Ctrl-C: with what is done to the application from outside."""
        self._display.event(text)
        self._runs_on = True
        with suppress(KeyboardInterrupt):
            while True:
                time.sleep(_LOOK_SECONDS)
                self._look()

    def stop(self) -> None:
        """Stop the consumers in order, and read what they have done.

        Raises:
            KinesisSpoutError: one failed at that.
        """
        self._display.event("stopping the consumers")
        for consumer in self._consumers:
            consumer.stop()
        self._read_all()

    def tally(self) -> Tally:
        """Balance the books."""
        return tally(self._producer.produced, self.ledger.handled, self.letters)

    @property
    def second(self) -> Join | None:
        """How the second consumer joined; None if it was not started."""
        return None if self._second is None else self._milestones.joins[self._second.run]

    @property
    def kills(self) -> Sequence[Kill]:
        """What was killed, and what came after."""
        return [replace(kill, repeated=self.ledger.repeated[kill.run]) for kill in self._milestones.kills]

    def examples(self) -> Sequence[DeadLetter]:
        """Choose some dead letters to show: of each reason one, then more."""
        by_reason = {letter.reason: letter for letter in self.letters.values()}
        others = [letter for letter in self.letters.values() if letter not in by_reason.values()]
        return [*by_reason.values(), *others][:_EXAMPLES]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for consumer in self._consumers:
            consumer.kill(self._workers(consumer))

    @property
    def _consumers(self) -> list[ConsumerProcess]:
        return [self._spark] if self._second is None else [self._second, self._spark]

    def _look(self) -> None:
        self._producer.check()
        for consumer in self._consumers:
            consumer.check()
        deliveries = self._read()
        statuses = {consumer.run: consumer.status() for consumer in self._consumers}
        now = time.monotonic()
        if self._working_since is None and self._spark.run in self.ledger.workers:
            self._working_since = now
        self._note_milestones(now, deliveries, statuses)
        self._moving = self._finished != self._progress[0]
        # Spark may take long to start; only consumers that run and idle have nothing more to give.
        busy = any(each.joined_at is None or each.in_flight or each.waiting for each in statuses.values())
        if self._moving or busy:
            self._progress = self._finished, now
        if statuses[self._spark.run].joined_at is not None:
            finished = "running on" if self._runs_on else "finishing"
            self._phase = finished if self._producer.finished else "consuming"
        self._display.update(
            Snapshot(
                phase=self._phase,
                records=self._records,
                produced=self._producer.produced,
                acked=len(self.ledger.handled),
                dead_lettered=len(self.letters),
                retries=self.ledger.retries,
                open_shards=self._producer.open_shards,
                owned={
                    "Spark" if consumer is self._spark else "Python": len(statuses[consumer.run].owned)
                    for consumer in reversed(self._consumers)
                },
            )
        )

    def _note_milestones(
        self, now: float, deliveries: Sequence[Delivery], statuses: Mapping[int, ConsumerStatus]
    ) -> None:
        for text in self._milestones.look(now, deliveries, statuses, self._producer.open_shards):
            self._display.event(text)
        stage = len(self._milestones.kills) + self._milestones.is_shared()
        self._producer.allow(
            int(self._records * (HELD_AT + (1 - HELD_AT) * stage / (self._kills_wanted + 1)))
        )

    def _read(self) -> list[Delivery]:
        for text in _told(self._events):
            self._display.event(text)
        deliveries = self.ledger.read()
        if time.monotonic() - self._letters_read_at >= _LETTERS_SECONDS:
            self._read_letters()
        return deliveries

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
            errors = [error for each in self._consumers if (error := each.status().error) is not None]
            trouble = f"; the newest error: {errors[0]}" if errors else ""
            return (
                f"for {_STALLED_SECONDS:g} s the consumers had nothing left to do, while "
                f"{self._unfinished:,} records had no end{trouble}"
            )
        return None

    # Consumers that come and go

    def _second_is_due(self) -> bool:
        since = self._working_since
        return self._second is None and since is not None and time.monotonic() - since >= _ALONE_SECONDS

    def _start_second(self) -> None:
        self._second = self._start_consumer("plain", self._spark.run + 1)
        self._milestones.started(self._second.run, self._second.pid)
        self._display.event(f"starting a second consumer (pid {self._second.pid}): a loop in plain Python")

    def _kill_is_due(self) -> bool:
        done, since = len(self.kills), self._working_since
        if done == self._kills_wanted or since is None or time.monotonic() - since < _SETTLED_SECONDS:
            return False
        if self._finished < self._records * _KILLS_END * (done + 1) / (self._kills_wanted + 1):
            return False
        if not self._milestones.is_working():
            return False
        if self._unfinished == 0 and self._producer.is_held:
            # Nothing is in flight that a kill could hit: let there be more, unless this was all.
            self._producer.allow(self._records)
            return self._producer.finished
        return self._moving and self._unfinished > 0

    def _kill(self) -> None:
        killed, survivor = self._spark, self._second
        kept = () if survivor is None else survivor.status().owned
        shards = set(killed.status().owned) - set(kept)
        killed_at = time.monotonic()
        killed.kill(self._workers(killed))
        deliveries = self._read()
        self._milestones.killed(killed.run, killed.pid, killed_at, shards=shards, unfinished=self._unfinished)
        self._display.event(
            f"killed the consumer on Spark (pid {killed.pid}): {self._unfinished:,} records are unfinished"
        )
        self._spark = self._start_consumer("on_spark", max(each.run for each in self._consumers) + 1)
        self._milestones.started(self._spark.run, self._spark.pid)
        self._working_since = None
        self._phase = "resuming: starting Spark"
        self._display.event(f"started it again (pid {self._spark.pid})")
        self._note_milestones(
            time.monotonic(), deliveries, {each.run: each.status() for each in self._consumers}
        )

    def _workers(self, consumer: ConsumerProcess) -> Iterable[int]:
        return self.ledger.workers.get(consumer.run, ())


def _told(events: "SimpleQueue[str]") -> Iterable[str]:
    while True:
        try:
            yield events.get_nowait()
        except Empty:
            return
