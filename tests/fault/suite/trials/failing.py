"""What a door's code does with a record of a trial: writes down that it has it, and fails as the record says.

Each failure that was drawn happens once, whichever process or attempt meets it: it leaves a file, so that it is
counted also when a kill follows.
"""

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.fault.suite.consumers.delivery_log import DeliveryLog, Kind, RecordId
from tests.fault.suite.trials.plan import Place, TrialRecord

_logs: dict[str, DeliveryLog] = {}
"""Of this process; a forked one appends to the same file."""


@dataclass(frozen=True, kw_only=True)
class Failing:
    """Picklable: goes to Spark's workers. In the log a record is named by its place and its number."""

    log: str
    folder: str
    """For the files of the failures that happened."""

    def begins(self, record: TrialRecord, place: Place, attempt: int = 0) -> None:
        self._note(Kind.DELIVERED, record, place, attempt)

    def ends(self, record: TrialRecord, place: Place, attempt: int = 0) -> None:
        self._note(Kind.HANDLED, record, place, attempt)

    def fails(self, record: TrialRecord, place: Place) -> bool:
        """Say whether it fails here now; not the next time, if that was its last failure here."""
        for time in range(record.fails.get(place, 0)):
            try:
                os.close(
                    os.open(Path(self.folder, f"{place}.{record.number}.{time}"), os.O_CREAT | os.O_EXCL)
                )
            except FileExistsError:
                continue
            self._note(Kind.FAILED, record, place, 0)
            return True
        return False

    def handle(self, record: TrialRecord, place: Place, attempt: int = 0) -> None:
        """Do all of it, for what raises where it fails."""
        self.begins(record, place, attempt)
        if record.is_poison:
            raise ValueError("always")
        if self.fails(record, place):
            raise ValueError("this time")
        self.ends(record, place, attempt)

    def happened(self) -> Counter[str]:
        """Count the failures by their places."""
        return Counter(file.name.partition(".")[0] for file in Path(self.folder).iterdir())

    def _note(self, kind: Kind, record: TrialRecord, place: Place, attempt: int) -> None:
        if self.log not in _logs:
            _logs[self.log] = DeliveryLog(Path(self.log))
        _logs[self.log].add(kind, RecordId(place, record.number), attempt=attempt)
