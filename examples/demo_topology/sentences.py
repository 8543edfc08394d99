"""The demo's data: numbered sentences of random words, and which of them make trouble."""

import json
from collections import Counter
from collections.abc import Collection
from enum import StrEnum
from random import Random
from typing import Final

import msgspec

from kinesis_spout import Record
from kinesis_spout.kinesis.write.put_records import Entry

_TEXT: Final = (
    "storm spout bolt tuple stream shard record spark kinesis word count split anchor tree root edge ack fail "
    "retry exactly once the a of and one two many rain wind cloud river lake sea ship harbour"
)
_WORDS: Final = tuple(_TEXT.split())
_LENGTHS: Final = range(3, 10)
"""Words of a sentence."""


class Trouble(StrEnum):
    """What goes wrong with a delivery of a sentence."""

    NONE = ""
    SPLIT = "split"
    """It fails before it is split."""
    COUNT = "count"
    """One of its words fails, after it was counted."""
    DEATH = "death"
    """After a word was counted, the process that did so is killed; once."""


class Sentences:
    """So many sentences, the same for the same seed.

    Args:
        count: how many.
        seed: chooses the words.
    """

    def __init__(self, count: int, seed: int) -> None:
        choice = Random(seed)  # noqa: S311 - nobody is to be surprised
        self._sentences = [" ".join(choice.choices(_WORDS, k=choice.choice(_LENGTHS))) for _ in range(count)]

    def entries(self) -> list[Entry]:
        """Give them as records of a stream."""
        return [
            Entry(str(number), json.dumps({"id": number, "sentence": sentence}).encode())
            for number, sentence in enumerate(self._sentences)
        ]

    def recount(self, without: Collection[int]) -> Counter[str]:
        """Count the words of all sentences but those with these numbers."""
        return Counter(
            word
            for number, sentence in enumerate(self._sentences)
            if number not in without
            for word in sentence.split()
        )


class SentenceScheme:
    """Makes (sentence, trouble) of a record. Picklable.

    Args:
        deadly: the number of the sentence that kills a worker.
    """

    def __init__(self, deadly: int) -> None:
        self._deadly = deadly

    def __call__(self, record: Record) -> tuple[str, str]:
        """See ``Scheme``."""
        said = msgspec.json.decode(record.data)
        return said["sentence"], trouble_of(said["id"], record.attempt, self._deadly).value


def number_of(data: bytes) -> int:
    """Give the number of the sentence that a record's data holds."""
    return int(json.loads(data)["id"])


def trouble_of(number: int, attempt: int, deadly: int) -> Trouble:
    """Choose the trouble that a delivery makes: one in 25 fails at first, one in 125 always."""
    if number == deadly:
        return Trouble.DEATH
    if number % 250 in {41, 166}:
        return Trouble.SPLIT if number % 250 == 41 else Trouble.COUNT  # noqa: PLR2004 - any of them would do
    if attempt == 1 and number % 50 in {7, 32}:
        return Trouble.SPLIT if number % 50 == 7 else Trouble.COUNT  # noqa: PLR2004
    return Trouble.NONE
