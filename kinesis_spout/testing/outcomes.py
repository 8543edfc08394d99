"""What became of each record of a run, in the order in which the records were handed out first."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from kinesis_spout.model.record import Record
from kinesis_spout.plain.listener import FailReason, SpoutListener
from kinesis_spout.testing.clock import ManualClock


class Ending(StrEnum):
    """How it stands with a record when the run is over."""

    ACKED = "acked"
    DEAD_LETTERED = "dead-lettered"
    WAITING = "waiting"
    """Its last delivery failed, and its retry was not due before the run was over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One call of the handler."""

    number: int
    """Which call of the run it was, from 1."""
    record: Record
    """As it was read, with the number of the attempt, whatever the handler did to the copy that it was given."""
    at_seconds: float
    """When it began, in seconds since the run did, to the millisecond."""
    error: str | None = None
    """What it failed with, as a dead letter says it; None if it was acked."""
    timed_out: bool = False
    """Whether it failed because it took longer than ``message_timeout_seconds``."""
    retry_in_seconds: float | None = None
    """After which delay the record is due again, to the millisecond; None if it never is."""

    @property
    def attempt(self) -> int:
        """Which delivery of the record it is: 1 at first, deliveries of earlier runs included."""
        return self.record.attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one record."""

    record: Record
    """As it was read."""
    ending: Ending
    deliveries: tuple[Delivery, ...]
    """Those of this run, at least one."""

    @property
    def attempts(self) -> int:
        """How often the record was delivered, in earlier runs too."""
        return self.deliveries[-1].attempt

    @property
    def retries(self) -> int:
        """How often the record was delivered again after a failure: one less than its attempts."""
        return self.attempts - 1

    @property
    def error(self) -> str | None:
        """What the last failure said; None if no delivery failed. An acked record may have failed before."""
        return next((each.error for each in reversed(self.deliveries) if each.error is not None), None)

    @property
    def acked(self) -> bool:
        """Whether the handler returned, in the end."""
        return self.ending is Ending.ACKED

    @property
    def dead_lettered(self) -> bool:
        """Whether the record was given up."""
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
        """Of deliveries, by message id."""

    def handed_out(self, message_id: str, record: Record) -> None:
        """Note that the handler is about to be called."""
        at_seconds = round(self._clock.monotonic() - self._begun, 3)
        self._deliveries[message_id] = Delivery(
            number=len(self._deliveries) + 1, record=record, at_seconds=at_seconds
        )

    def is_over(self, message_id: str) -> bool:
        """Tell whether a delivery has ended."""
        return message_id in self._endings

    def acked(self, message_id: str) -> None:
        """See ``SpoutListener``."""
        self._endings[message_id] = Ending.ACKED

    def failed(self, message_id: str, reason: FailReason, error: str, retry_in: float | None) -> None:
        """See ``SpoutListener``."""
        self._endings[message_id] = Ending.DEAD_LETTERED if retry_in is None else Ending.WAITING
        self._deliveries[message_id] = replace(
            self._deliveries[message_id],
            error=error,
            timed_out=reason is FailReason.TIME_OUT,
            retry_in_seconds=None if retry_in is None else round(retry_in, 3),
        )

    def outcomes(self) -> Outcomes:
        """Tell what became of each record."""
        of_records: dict[str, list[str]] = {}
        for message_id, delivery in self._deliveries.items():
            of_records.setdefault(delivery.record.message_id, []).append(message_id)
        return Outcomes(map(self._outcome, of_records.values()))

    def _outcome(self, message_ids: Sequence[str]) -> Outcome:
        deliveries = tuple(self._deliveries[message_id] for message_id in message_ids)
        return Outcome(
            record=deliveries[0].record, ending=self._endings[message_ids[-1]], deliveries=deliveries
        )
