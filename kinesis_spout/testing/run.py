"""Runs a handler over records, as ``foreach_record`` would, without Spark, threads or waiting.

The spout itself delivers, retries, gives up and commits, stepped by a ``ManualClock``: none of its rules is
written here again.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, Unpack

from kinesis_spout.consumer.open_ports import read_settings
from kinesis_spout.dead_letters.sink_url import open_sink
from kinesis_spout.model.record import Record
from kinesis_spout.model.scheme import resolve
from kinesis_spout.model.unfinished_work import refuse_unfinished, refuse_unfinished_function
from kinesis_spout.plain.listener import FailReason, SpoutListener
from kinesis_spout.settings import SpoutConfig, SpoutSettings
from kinesis_spout.testing.clock import ManualClock
from kinesis_spout.testing.ports import in_memory_ports
from kinesis_spout.testing.stepped_spout import SteppedSpout
from kinesis_spout.testing.stream import ITERATOR_SECONDS, InMemoryStream
from kinesis_spout.testing.zookeeper.in_memory_zookeeper import InMemoryZooKeeper


class Ending(StrEnum):
    """The state of a record at the end of a run."""

    ACKED = "acked"
    DEAD_LETTERED = "dead-lettered"
    WAITING = "waiting"
    """Its last delivery failed, and its retry was not due before the run was over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One call of the handler."""

    number: int
    """The number of the call within the run, from 1."""
    record: Record
    """As it was read, with the number of the attempt, whatever the handler did to the copy that it was given."""
    at_seconds: float
    """When it began, in seconds since the run did, to the millisecond."""
    error: str | None = None
    """The failure, as a dead letter says it; None if it was acked."""
    timed_out: bool = False
    """True if it failed because it took longer than ``message_timeout_seconds``."""
    retry_in_seconds: float | None = None
    """After which delay the record is due again, to the millisecond; None if it never is."""

    @property
    def attempt(self) -> int:
        """The number of the record's delivery: 1 at first, deliveries of earlier runs included."""
        return self.record.attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one record."""

    record: Record
    """As it was read."""
    ending: Ending
    deliveries: tuple[Delivery, ...]
    """Those of this run, at least one."""

    @property
    def attempts(self) -> int:
        """The number of the record's deliveries, in earlier runs too."""
        return self.deliveries[-1].attempt

    @property
    def retries(self) -> int:
        """The number of the record's deliveries after a failure: one less than its attempts."""
        return self.attempts - 1

    @property
    def error(self) -> str | None:
        """The text of the last failure; None if no delivery failed. An acked record may have failed before."""
        return next((each.error for each in reversed(self.deliveries) if each.error is not None), None)

    @property
    def acked(self) -> bool:
        """True if the handler returned, in the end."""
        return self.ending is Ending.ACKED

    @property
    def dead_lettered(self) -> bool:
        """True if the record was given up."""
        return self.ending is Ending.DEAD_LETTERED

    def __str__(self) -> str:
        failed = "" if self.error is None else f" ({self.error})"
        return f"{self.record.data!r}: {self.ending} at attempt {self.attempts}{failed}"


class Outcomes(tuple[Outcome, ...]):
    """The outcomes of a run, one for each record that was handed out. Read it like a list.

    A record that was not handed out is not in it: one that waits behind an earlier record, for example.
    """

    __slots__ = ()

    @property
    def acked(self) -> list[Outcome]:
        """The records that were acked."""
        return self._that_are(Ending.ACKED)

    @property
    def dead_lettered(self) -> list[Outcome]:
        """The records that were given up."""
        return self._that_are(Ending.DEAD_LETTERED)

    @property
    def waiting(self) -> list[Outcome]:
        """The records that were due to be tried again later than the run went."""
        return self._that_are(Ending.WAITING)

    @property
    def deliveries(self) -> list[Delivery]:
        """Every call of the handler, in the order in which they were made."""
        deliveries = (each for outcome in self for each in outcome.deliveries)
        return sorted(deliveries, key=lambda delivery: delivery.number)

    def _that_are(self, ending: Ending) -> list[Outcome]:
        return [outcome for outcome in self if outcome.ending is ending]

    def __repr__(self) -> str:
        return "\n".join(["Outcomes:", *map(str, self)])


class Story(SpoutListener):
    """Writes down what the spout tells. Mutable."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._begun = clock.monotonic()
        self._deliveries: dict[str, Delivery] = {}
        """By message id, in order."""
        self._endings: dict[str, Ending] = {}
        """The numbers of deliveries, by message id."""

    def handed_out(self, message_id: str, record: Record) -> None:
        at_seconds = round(self._clock.monotonic() - self._begun, 3)
        self._deliveries[message_id] = Delivery(
            number=len(self._deliveries) + 1, record=record, at_seconds=at_seconds
        )

    def is_over(self, message_id: str) -> bool:
        return message_id in self._endings

    def acked(self, message_id: str) -> None:
        self._endings[message_id] = Ending.ACKED

    def failed(self, message_id: str, reason: FailReason, error: str, retry_in: float | None) -> None:
        self._endings[message_id] = Ending.DEAD_LETTERED if retry_in is None else Ending.WAITING
        self._deliveries[message_id] = replace(
            self._deliveries[message_id],
            error=error,
            timed_out=reason is FailReason.TIME_OUT,
            retry_in_seconds=None if retry_in is None else round(retry_in, 3),
        )

    def outcomes(self) -> Outcomes:
        of_records: dict[str, list[str]] = {}
        for message_id, delivery in self._deliveries.items():
            of_records.setdefault(delivery.record.message_id, []).append(message_id)
        return Outcomes(map(self._outcome, of_records.values()))

    def _outcome(self, message_ids: Sequence[str]) -> Outcome:
        deliveries = tuple(self._deliveries[message_id] for message_id in message_ids)
        return Outcome(
            record=deliveries[0].record, ending=self._endings[message_ids[-1]], deliveries=deliveries
        )


A_DAY_SECONDS: Final = 86_400.0

_LEAST_STEP_SECONDS: Final = 0.0001
"""The clock moves on at least so much: a shard that had nothing rests for a moment, and sums are rounded."""

_LONGEST_STEP_SECONDS: Final = ITERATOR_SECONDS / 2
"""The time after which shards are polled: an iterator that expires costs a second read, which has to wait."""


def run(
    handler: Callable[[Any], object],
    records: InMemoryStream | Iterable[bytes | str | Record],
    *,
    scheme: str | Callable[[Record], Any] = "raw",
    clock: ManualClock | None = None,
    for_seconds: float = A_DAY_SECONDS,
    progress: InMemoryZooKeeper | None = None,
    **settings: Unpack[SpoutSettings],
) -> Outcomes:
    """Call ``handler(values)`` for each record, until every one is acked or dead-lettered.

    It is as in ``KinesisSpout.foreach_record``: returning acks, raising (anything) fails, ``Reject`` and
    ``RetryLater`` mean what they do there, and the handler is given a copy of the record. A handler that moves the
    clock on by ``message_timeout_seconds`` has timed out. One thing differs: a ``KeyboardInterrupt`` fails its
    record and then goes on to the caller, for it may be the developer's Ctrl-C.

    Args:
        handler: called here, on this thread.
        records: payloads (text is encoded as UTF-8), or records, of which data and partition key are put on a new
            stream of one shard; each payload has a partition key of its own. Or a stream, which is read as it is,
            parents before children, together with what the handler itself puts on it.
        scheme: what the values are; see ``kinesis_spout.model.scheme.resolve``.
        clock: what time it is; a stream's own if one is given. The run moves it on to the next retry whenever
            there is nothing to be done before it.
        for_seconds: the run is over when nothing is left to do before this, by the clock. With 0 it does what can
            be done now, and the test moves the clock.
        progress: where it is kept. A second run with the same one is a restart of the application.
        settings: those of ``SpoutConfig``, with other defaults: ``initial_position`` is trim_horizon,
            ``retry_jitter`` is 0, ``dead_letters`` are kept in memory. Connections are not made, so their
            settings do nothing. Environment variables are not read.

    Raises:
        InvalidConfig: a setting or the scheme is not valid, or the handler is a generator function or an
            ``async def``: this runs no event loop.
        ValueError: the stream has no ``ManualClock``, or another one than ``clock``.
    """
    refuse_unfinished_function("handler", handler)
    stream, clock = _stream_of(records, clock)
    chosen: SpoutSettings = {
        "stream": stream.name,
        "app": "testing",
        "initial_position": "trim_horizon",
        "retry_jitter": 0.0,
        "max_spared_seconds": 0,
        **settings,
    }
    config = SpoutConfig.of(**chosen)
    values_of = resolve(scheme)
    ports = in_memory_ports(
        stream,
        progress or InMemoryZooKeeper(),
        None if config.dead_letters is None else open_sink(config.dead_letters),
        settings=read_settings(config),
    )
    story = Story(clock)
    with SteppedSpout(config=config, ports=ports, listener=story).open() as spout:
        _hand_out_all(spout, story, clock, for_seconds, lambda record: handler(values_of(record)))
    return story.outcomes()


def _hand_out_all(
    spout: SteppedSpout,
    story: Story,
    clock: ManualClock,
    for_seconds: float,
    handle: Callable[[Record], object],
) -> None:
    until, least_step = clock.monotonic() + for_seconds, _LEAST_STEP_SECONDS
    while clock.monotonic() <= until:
        emitted = spout.next_tuple()
        if emitted is not None:
            story.handed_out(emitted.message_id, emitted.values)
            _handle(spout, story, emitted.message_id, handle)
            continue
        now, due_at = clock.monotonic(), spout.due_at
        if spout.all_done or due_at > until:
            return
        # A due record that does not come waits for something else: look less and less often.
        least_step = _LEAST_STEP_SECONDS if due_at > now else 2 * least_step
        clock.advance(min(max(least_step, due_at - now), _LONGEST_STEP_SECONDS))


def _handle(spout: SteppedSpout, story: Story, message_id: str, handle: Callable[[Record], object]) -> None:
    record = spout.record(message_id)
    assert record is not None, "what was just handed out is not finished"
    error: BaseException | None = None
    try:
        returned = handle(record)
        if returned is not None:
            refuse_unfinished(returned)
    except BaseException as raised:  # noqa: BLE001 - whatever it raises fails its record
        error = raised
    spout.do_what_is_due()
    if not story.is_over(message_id):  # it has not timed out
        if error is None:
            spout.ack(message_id)
        else:
            spout.fail(message_id, error)
    if isinstance(error, KeyboardInterrupt):
        raise error


def _stream_of(
    records: InMemoryStream | Iterable[bytes | str | Record], clock: ManualClock | None
) -> tuple[InMemoryStream, ManualClock]:
    if isinstance(records, InMemoryStream):
        if not isinstance(records.clock, ManualClock) or clock not in (None, records.clock):
            raise ValueError(
                f"expected a stream on the ManualClock of the run, got one on {records.clock!r}: make it with "
                "InMemoryStream(clock=ManualClock()), and leave clock out"
            )
        return records, records.clock
    if isinstance(records, (bytes, str)):
        raise TypeError(f"expected several records, got {records!r}: put it into a list")
    clock = clock or ManualClock()
    stream = InMemoryStream(clock=clock)
    for number, each in enumerate(records):
        if isinstance(each, Record):
            stream.put(each.data, each.partition_key)
        else:
            stream.put(each.encode() if isinstance(each, str) else each, f"key-{number}")
    return stream, clock
