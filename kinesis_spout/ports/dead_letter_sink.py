"""What keeps the records that were given up."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from kinesis_spout.model.dead_letter import DeadLetter


class DeadLetterSink(Protocol):
    """Keeps the records that were given up."""

    def check_writable(self) -> None:
        """Find out that letters can be written, as far as that is possible without leaving anything behind.

        Called once, before anything is read: a sink that is wrong must not be noticed at the first letter.

        Raises:
            DeadLetterError: says what is wrong.
        """
        ...

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Make the letters durable before returning (invariant 6). At least once: a repeat may store twice.

        Raises:
            DeadLetterError: retriable; none, some or all of them may be stored.
        """
        ...

    def read(self) -> Iterable[DeadLetter]:
        """Give back what is stored and was not redriven, oldest file first.

        Raises:
            DeadLetterError: names what cannot be read.
        """
        ...

    def close(self) -> None:
        """Release what is held. May be called twice."""
        ...
