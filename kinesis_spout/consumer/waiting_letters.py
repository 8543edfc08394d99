"""The dead letters that are not durable yet."""

from collections.abc import Collection, Mapping
from typing import Final

from kinesis_spout.dead_letter import DeadLetter
from shard_state import SequenceNumber

Place = tuple[str, SequenceNumber]
"""A shard's id, and a record of it."""

_OVERHEAD_BYTES: Final = 500
"""What a letter weighs besides its record's data, roughly."""


class WaitingLetters:
    """Letters by the place of their record, the oldest first. Mutable; not thread-safe."""

    def __init__(self) -> None:
        self._letters: dict[Place, DeadLetter] = {}
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._letters)

    def add(self, place: Place, letter: DeadLetter) -> None:
        """Have a letter wait; it takes the place of an older one about the same record."""
        self._remove(place)
        self._letters[place] = letter
        self.size_bytes += _weight(letter)

    def copy(self) -> Mapping[Place, DeadLetter]:
        """Give what waits now, to be written."""
        return dict(self._letters)

    def written(self, place: Place, letter: DeadLetter) -> bool:
        """Note that a letter is durable.

        Returns:
            False if this very letter waits no more: its shard was lost. What waits in its place then was given
            up under another ownership, and is yet to be written.
        """
        if self._letters.get(place) is not letter:
            return False
        self._remove(place)
        return True

    def drop_shards(self, shard_ids: Collection[str]) -> None:
        """Drop the letters of shards that are somebody else's now."""
        for place in [place for place in self._letters if place[0] in shard_ids]:
            self._remove(place)

    def _remove(self, place: Place) -> None:
        letter = self._letters.pop(place, None)
        if letter is not None:
            self.size_bytes -= _weight(letter)


def _weight(letter: DeadLetter) -> int:
    return len(letter.data) + _OVERHEAD_BYTES
