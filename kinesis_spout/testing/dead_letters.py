"""A dead letter sink in memory."""

from collections.abc import Iterable, Sequence

from kinesis_spout.dead_letters.stored_form import RedrivenMark, mark_of, without_redriven
from kinesis_spout.model.dead_letter import DeadLetter
from kinesis_spout.model.errors import DeadLetterError


class InMemoryDeadLetterSink:
    """Keeps letters in ``letters``. Mutable. Passes the port's contract tests, apart from surviving a crash."""

    def __init__(self) -> None:
        self.letters: list[DeadLetter] = []
        """What was written, redriven or not, repeats included."""
        self.closed = False
        self.is_writable = True
        """What ``check_writable`` finds. Writes do not look at it: see ``fail_writes``."""
        self._marks: set[RedrivenMark] = set()
        self._failures_to_come = 0

    def fail_writes(self, count: int) -> None:
        """Let the next ``count`` writes raise, with nothing stored."""
        self._failures_to_come = count

    def check_writable(self) -> None:
        """Fail if ``is_writable`` is not set; see the port."""
        if not self.is_writable:
            raise DeadLetterError("expected to be able to write, got a refusal that the test asked for")

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Keep the letters; see the port."""
        if self._failures_to_come:
            self._failures_to_come -= 1
            raise DeadLetterError("expected to write, got a failure that the test asked for")
        self.letters.extend(letters)

    def read(self) -> Iterable[DeadLetter]:
        """Give back what was not redriven; see the port."""
        return without_redriven(list(self.letters), self._marks)

    def mark_redriven(self, letters: Sequence[DeadLetter]) -> None:
        """Leave the letters out of ``read`` from now on."""
        self._marks.update(mark_of(letter) for letter in letters)

    def close(self) -> None:
        """Note that it was closed. May be called twice."""
        self.closed = True
