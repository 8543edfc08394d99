"""A consumer of the plain door that writes down each delivery, until its standard input ends.

``python -m tests.fault.suite.consumers.consumer JOB``, the JSON of a `Job`. One record is under way at a time.
What a record asks for (see ``payload``) is done to it: it raises, it hangs, it ends the process.
"""

import faulthandler
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, Final

import msgspec

from kinesis_spout.consumer.open_ports import open_ports
from kinesis_spout.model.clock import SystemClock
from kinesis_spout.model.errors import DeadLetterError
from kinesis_spout.model.handler import Reject
from kinesis_spout.model.record import DeadLetter
from kinesis_spout.monitoring import doors, server
from kinesis_spout.monitoring.consumer_look import Life
from kinesis_spout.monitoring.health import Reason, not_alive
from kinesis_spout.plain.listener import FailReason, SpoutListener
from kinesis_spout.plain.record_spout import RecordSpout
from kinesis_spout.plain.stream_tuples import MessageId
from kinesis_spout.ports import DeadLetterSink
from kinesis_spout.settings import SpoutConfig
from tests.fault.suite.consumers.delivery_log import DeliveryLog, Kind, RecordId
from tests.fault.suite.consumers.held_commit import hold_commits
from tests.fault.suite.consumers.payload import Act, Payload

EXITED_BY_HANDLER: Final = 77

_STEP_SECONDS: Final = 0.005
_HANGING_SINK_SECONDS: Final = 2.0


class SinkFault:
    """What is wrong with the place of the dead letters: the text in a file that the director writes."""

    FAILS = "fails"
    HANGS = "hangs"
    LOSES_ANSWERS = "loses answers"
    """Stores the letters, and says that it did not."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    settings: dict[str, Any]
    log: str
    """Where deliveries are written down."""
    clock: str
    """A file with the seconds that this consumer's clock is off; none: it is right."""
    sink: str
    """A file with a ``SinkFault``; none: it works."""
    hold: str
    """A file that has the next commit be held until others own its shards;"""
    held: str
    """a byte for each that was."""
    hold_seconds: float
    exits: str
    """A folder for the records that have ended a process: each does so once."""
    hang_seconds: float
    breaks_livez: bool = False
    """Whether it is not alive while ZooKeeper does not answer."""


class Handler:
    """Does with a record what the record says."""

    def __init__(self, job: Job) -> None:
        self._exits = Path(job.exits)
        self._hang_seconds = job.hang_seconds

    def __call__(self, payload: Payload, attempt: int) -> bool:
        """Raise, or say whether the work is done."""
        if attempt <= payload.failures:
            raise ValueError(f"attempt {attempt} of {payload.failures} that fail")
        match payload.act:
            case Act.POISON:
                raise ValueError("always")
            case Act.REJECT:
                raise Reject("never")
            case Act.HANG if attempt == 1:
                time.sleep(self._hang_seconds)
            case Act.EXIT if self._is_first(payload):
                os._exit(EXITED_BY_HANDLER)
        return payload.act is not Act.FORGET or attempt > 1

    def _is_first(self, payload: Payload) -> bool:
        with suppress(FileExistsError):
            (self._exits / str(payload.number)).touch(exist_ok=False)
            return True
        return False


class LoggingListener(SpoutListener):
    def __init__(self, log: DeliveryLog) -> None:
        self._log = log

    def acked(self, message_id: str) -> None:
        self._add(Kind.ACKED, message_id)

    def failed(self, message_id: str, reason: FailReason, error: str, delay_seconds: float | None) -> None:
        del reason, error, delay_seconds
        self._add(Kind.FAILED, message_id)

    def exhausted(self, message_id: str, attempts: int, error: str) -> None:
        del attempts, error
        self._add(Kind.EXHAUSTED, message_id)

    def _add(self, kind: Kind, message_id: str) -> None:
        delivery = MessageId.parse(message_id)
        record = RecordId(delivery.shard_id, delivery.sequence.number)
        self._log.add(kind, record, delivery.epoch, delivery.attempt)


class LoggingSink:
    """Writes down which letters are durable, and fails when it is told to."""

    def __init__(self, sink: DeadLetterSink, log: DeliveryLog, fault: Path) -> None:
        self._sink = sink
        self._log = log
        self._fault = fault
        self.check_writable = sink.check_writable
        self.read = sink.read
        self.mark = sink.mark
        self.close = sink.close

    def write(self, letters: Sequence[DeadLetter]) -> None:
        fault = _text_of(self._fault)
        if fault == SinkFault.FAILS:
            raise DeadLetterError("the place of the dead letters is down: injected")
        if fault == SinkFault.HANGS:
            time.sleep(_HANGING_SINK_SECONDS)
        self._sink.write(letters)
        for letter in letters:
            record = RecordId(letter.shard_id, int(letter.sequence_number))
            self._log.add(Kind.BURIED, record, attempt=letter.attempts)
        if fault == SinkFault.LOSES_ANSWERS:
            raise DeadLetterError("the answer of the place of the dead letters was lost: injected")


def tell_all() -> None:
    """Log what happens, and on SIGUSR1 where each thread is: for who looks into a run that went wrong."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    faulthandler.register(signal.SIGUSR1)


def main() -> None:
    tell_all()
    job = msgspec.json.decode(sys.argv[1], type=Job)
    log = DeliveryLog(Path(job.log))
    shift_clock(Path(job.clock))
    if job.breaks_livez:
        break_livez()
    hold_commits(Path(job.hold), Path(job.held), job.hold_seconds)
    config = SpoutConfig.of(**job.settings)
    ports = open_ports(config)
    ports = replace(ports, dead_letters=LoggingSink(ports.dead_letters, log, Path(job.sink)))
    with RecordSpout(config=config, ports=ports, listener=LoggingListener(log)).open() as spout:
        log.add(Kind.STARTED, RecordId("", 0))
        handle = Handler(job)
        while not select.select([sys.stdin], [], [], 0)[0]:
            if not consume_one(spout, log, handle):
                time.sleep(_STEP_SECONDS)


def consume_one(spout: RecordSpout, log: DeliveryLog, handle: Handler) -> bool:
    emitted = spout.next_tuple()
    if emitted is None:
        return False
    record = emitted.values
    delivery = MessageId.parse(emitted.message_id)
    named = RecordId(delivery.shard_id, delivery.sequence.number), delivery.epoch, delivery.attempt
    log.add(Kind.DELIVERED, *named)
    try:
        is_done = handle(Payload.decode(record.data), record.attempt)
    except Exception as error:  # noqa: BLE001 - what a user's code does with a handler that raises
        spout.fail(emitted.message_id, error)
        return True
    if is_done:
        log.add(Kind.HANDLED, *named)
        spout.ack(emitted.message_id)
    return True


def shift_clock(file: Path) -> None:
    """Have this process's clock be off by what the file says, from now on and as it says then."""

    def shifted(self: SystemClock) -> float:
        del self
        return time.time() + float(_text_of(file) or 0.0)

    SystemClock.time = shifted  # type: ignore[method-assign]


def break_livez() -> None:
    """Have this process be not alive while ZooKeeper does not answer: the mistake that the judge must see."""
    judged = not_alive

    def asks_zookeeper(lives: Iterable[Life], awake_seconds: float = inf) -> list[Reason]:
        found = list(lives)
        consumers = [
            watch.consumer for each, _ in doors._servers.values() for watch in each.sources._all_watches()
        ]
        uncertain = [
            Reason(app=each.config.app, stream=each.stream, text="ZooKeeper does not answer")
            for each in consumers
            if not each.ports.coordinator.is_certain()
        ]
        return judged(found, awake_seconds) + uncertain

    server.not_alive = asks_zookeeper  # type: ignore[attr-defined]


def _text_of(file: Path) -> str:
    try:
        return file.read_text()
    except FileNotFoundError:
        return ""


if __name__ == "__main__":
    main()
