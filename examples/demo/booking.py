"""The demo's record handler, which both consumers run: some flights fail for good, some only at first.

It is what a user would write, plus a line in the ledger for each outcome, from which the summary is made.
"""

import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from examples.demo.flights import MISSING
from examples.demo.ledger import ledger_of_this_process
from kinesis_spout import Record, Reject

_ONE_IN: Final = 40
"""Of how many flights one finds the lookup down at its first attempt."""


class CancelledFlightError(ValueError):
    """A flight without a departure time. Trying again will not help, but the handler cannot know."""


class LookupDownError(ConnectionError):
    """A made-up outage, which has passed when the record comes again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BookDeparture:
    """Books the departure of a flight: writes it down in the ledger."""

    ledger: Path
    run: int
    """Which start of a consumer this is."""
    seed: int

    def __call__(self, record: Record) -> None:
        """Returning acks the record, raising fails it."""
        flight = json.loads(record.data)
        ledger = ledger_of_this_process(self.ledger, self.run)
        try:
            self._book(flight, record.attempt)
        except Exception:
            ledger.failed(flight["id"], record.attempt, record.shard_id)
            raise
        ledger.handled(flight["id"], record.attempt, record.shard_id)

    def _book(self, flight: dict[str, str], attempt: int) -> None:
        name = f"{flight['carrier']}{flight['flight']} from {flight['origin']} to {flight['dest']}"
        if flight["dep_time"] == MISSING and flight["tailnum"] == MISSING:
            raise Reject(f"{name} never had an aircraft")
        if flight["dep_time"] == MISSING:
            raise CancelledFlightError(f"{name} was cancelled: it has no departure time")
        if attempt == 1 and zlib.crc32(f"{self.seed}:{flight['id']}".encode()) % _ONE_IN == 0:
            raise LookupDownError(f"the gate of {name} could not be looked up")
