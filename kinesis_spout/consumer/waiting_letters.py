"""The dead letters that are not durable yet."""

from collections.abc import Collection, Mapping
from typing import Final

from kinesis_spout.dead_letter import DeadLetter
from shard_state import SequenceNumber

RecordId = tuple[str, SequenceNumber]
"""A shard's id, and a record of it."""

_OVERHEAD_BYTES: Final = 500
"""What a letter weighs besides its record's data, roughly."""


class WaitingLetters:
    """Letters by their record, the oldest first. Mutable; not thread-safe."""

    def __init__(self) -> None:
        self._letters: dict[RecordId, DeadLetter] = {}
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._letters)

    def add(self, record: RecordId, letter: DeadLetter) -> None:
        """Have a letter wait; it replaces an older one about the same record."""
        self._remove(record)
        self._letters[record] = letter
        self.size_bytes += _weight(letter)

    def copy(self) -> Mapping[RecordId, DeadLetter]:
        """Give what waits now, to be written."""
        return dict(self._letters)

    def written(self, record: RecordId, letter: DeadLetter) -> bool:
        """Note that a letter is durable.

        Returns:
            False if this very letter waits no more: its shard was lost. What waits for the record then was given
            up under another ownership, and is yet to be written.
        """
        if self._letters.get(record) is not letter:
            return False
        self._remove(record)
        return True

    def drop_shards(self, shard_ids: Collection[str]) -> None:
        """Drop the letters of shards that are somebody else's now."""
        for record in [record for record in self._letters if record[0] in shard_ids]:
            self._remove(record)

    def _remove(self, record: RecordId) -> None:
        letter = self._letters.pop(record, None)
        if letter is not None:
            self.size_bytes -= _weight(letter)


def _weight(letter: DeadLetter) -> int:
    return len(letter.data) + _OVERHEAD_BYTES
