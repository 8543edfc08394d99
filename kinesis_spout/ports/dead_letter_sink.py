"""The store of records that were given up."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from kinesis_spout.model.dead_letter import DeadLetter


class DeadLetterSink(Protocol):
    """Keeps the records that were given up."""

    def check_writable(self) -> None:
        """Check that letters can be written, if possible without leaving anything behind.

        Called once, before anything is read: a wrong sink must not be noticed only at the first letter.

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
        """Return what is stored and was not redriven, oldest file first.

        Raises:
            DeadLetterError: names what cannot be read.
        """
        ...

    def close(self) -> None:
        """Release what is held. May be called twice."""
        ...
