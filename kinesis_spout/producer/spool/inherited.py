"""The records of ended owners: read from one file after the other, removed when confirmed.

They stay where they are. Copying them would need room, and a full disk may be why they were left; and if a
second owner dies, a third finds them.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from kinesis_spout.model.errors import SpoolDamaged, SpoolError
from kinesis_spout.producer.spool.folder import Claim, SpoolFolder
from kinesis_spout.producer.spool.port import Spooled
from kinesis_spout.producer.spool.salvage import check, damaged_records, described
from kinesis_spout.producer.spool.spool_file import SpoolFile

if TYPE_CHECKING:
    from pathlib import Path

_FILE_SHIFT: Final = 44
"""A record's number has the file's in its upper bits and the record's in its lower: 10^13 records a file."""
_IN_FILE: Final = (1 << _FILE_SHIFT) - 1


class _Inherited:
    """A file of an ended owner. Mutable: knows how far it was read.

    Only the file being read is kept open: a hundred of them would be four hundred descriptors.
    """

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self._file: SpoolFile | None = SpoolFile(claim.path, synced=False)
        self._read_to = 0
        self.damaged: list[int] = []
        """The numbers of damaged records. They stay in the file."""

    @property
    def is_read(self) -> bool:
        return self._file is None

    def read(self, limit: int) -> Sequence[Spooled]:
        """Return the next records; empty when all were returned."""
        while self._file is not None:
            found = self._file.read(self._read_to, limit)
            if not found:
                self._file.close()
                self._file = None
                break
            self._read_to = found[-1][0]
            self.damaged += [number for number, record in found if record is None]
            records = [record for _, record in found if record is not None]
            if records:
                return records
        return ()

    def forget(self, numbers: Collection[int]) -> None:
        if self._file is not None:
            self._file.forget(numbers)
            return
        with SpoolFile(self.claim.path, synced=False) as file:
            file.forget(numbers)

    def remove_if_empty(self) -> bool:
        """Remove the file if all was returned and forgotten; returns whether it was."""
        if self._file is not None:
            return False
        with SpoolFile(self.claim.path, synced=False) as file:
            is_empty = file.is_empty()
        if is_empty:
            self.claim.remove()
        return is_empty

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self.claim.release()


class InheritedRecords:
    """What this process has taken over in a folder. Mutable; not thread-safe."""

    def __init__(self, folder: SpoolFolder) -> None:
        self._folder = folder
        self._files: dict[int, _Inherited] = {}
        self._count = 0
        self._given_up: set[Path] = set()
        """Damaged; each is reported once."""

    def read(self, limit: int) -> Sequence[Spooled]:
        """Return up to ``limit`` records of one file; empty if there is none.

        Raises:
            SpoolDamaged: the file is damaged, or some of its records are, and the others were returned; the
                next call continues with the next file.
            SpoolError: it cannot be read now.
        """
        while (number := self._being_read()) is not None:
            inherited = self._files[number]
            try:
                records = inherited.read(limit)
            except SpoolDamaged as damage:
                self._given_up.add(inherited.claim.path)
                del self._files[number]
                inherited.close()
                raise described(inherited.claim.path, damage) from damage
            if records:
                return [Spooled(number << _FILE_SHIFT | record.number, record.entry) for record in records]
            if inherited.damaged:
                path = inherited.claim.path
                raise described(path, damaged_records(path, inherited.damaged))
            self._remove_if_empty(number)
        return ()

    def forget(self, numbers: Iterable[int]) -> list[int]:
        """Remove records from their files; returns the numbers that belong to no such file."""
        of_file: dict[int, list[int]] = {}
        for number in numbers:
            of_file.setdefault(number >> _FILE_SHIFT, []).append(number & _IN_FILE)
        own = of_file.pop(0, [])
        for number, in_file in of_file.items():
            if number in self._files:
                self._files[number].forget(in_file)
                self._remove_if_empty(number)
        return own

    def close(self) -> None:
        """Leave what is not confirmed to the next owner."""
        while self._files:
            self._files.popitem()[1].close()

    def _being_read(self) -> int | None:
        """Return the number of the file to read, taking over another if needed; None if there is none."""
        for number, inherited in self._files.items():
            if not inherited.is_read:
                return number
        for claim in self._folder.left_over():
            if claim.path in self._given_up:
                claim.release()
                continue
            self._take_over(claim)
            return self._count
        return None

    def _take_over(self, claim: Claim) -> None:
        try:
            check(claim.path)
            inherited = _Inherited(claim)
        except SpoolError as error:
            claim.release()
            if isinstance(error, SpoolDamaged):
                self._given_up.add(claim.path)
                raise described(claim.path, error) from error
            raise
        self._count += 1
        self._files[self._count] = inherited

    def _remove_if_empty(self, number: int) -> None:
        if self._files[number].remove_if_empty():
            del self._files[number]
