"""The dead letters of an application as a whole: by kind of error, and each without its data."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from kinesis_spout.model.dead_letter import DeadLetter
from kinesis_spout.operations.dead_letters import Choice, MarkingSink, kind_of
from kinesis_spout.operations.world import World
from kinesis_spout.settings import SpoutConfig

MAX_LETTERS: Final = 20_000
"""Of more, the newest are shown; all are counted."""
_MAX_ERROR_CHARS: Final = 1_000


@dataclass(slots=True, kw_only=True)
class LetterKind:
    """All letters of one kind of error. Mutable while they are counted."""

    kind: str
    count: int
    first: float
    last: float
    """When the first and the last of them died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterSummary:
    letter: DeadLetter
    """Without its data, its traceback, and the rest of a long error."""
    kind: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LettersView:
    total: int
    kinds: Sequence[LetterKind]
    """The most frequent ones first."""
    letters: Sequence[LetterSummary]
    """The newest first, at most ``MAX_LETTERS``."""
    can_mark: bool
    """Whether single letters can be redriven: their place remembers which were."""

    def chosen(self, choice: Choice) -> Iterator[LetterSummary]:
        return (each for each in self.letters if choice.takes(each.letter))


def view_letters(world: World, config: SpoutConfig) -> LettersView:
    """Read all letters that were not redriven; copies of one count once."""
    with world.dead_letters(config) as sink:
        return _counted(sink.read(), can_mark=isinstance(sink, MarkingSink))


def _counted(letters: Iterable[DeadLetter], *, can_mark: bool) -> LettersView:
    kinds: dict[str, LetterKind] = {}
    kept: deque[LetterSummary] = deque(maxlen=MAX_LETTERS)
    seen: set[tuple[str, float]] = set()
    for letter in letters:
        died = letter.died_at
        if (letter.message_id, died) in seen:
            continue
        seen.add((letter.message_id, died))
        kind = kind_of(letter)
        counted = kinds.setdefault(kind, LetterKind(kind=kind, count=0, first=died, last=died))
        counted.count += 1
        counted.first, counted.last = min(counted.first, died), max(counted.last, died)
        bare = msgspec.structs.replace(
            letter, data=b"", traceback=None, error=letter.error[:_MAX_ERROR_CHARS]
        )
        kept.append(LetterSummary(letter=bare, kind=kind, size_bytes=len(letter.data)))
    return LettersView(
        total=len(seen),
        kinds=sorted(kinds.values(), key=lambda each: (-each.count, each.kind)),
        letters=sorted(kept, key=lambda each: -each.letter.died_at),
        can_mark=can_mark,
    )
