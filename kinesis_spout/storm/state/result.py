"""What is kept of a result: a tuple that a bolt with state emits for tuples that are acked already.

A window, and a tick of a bolt with state, handle tuples that were acked before: if what they emit fails, no
record is delivered again for it. So each such tuple is the root of a tree of its own, and is kept in the state
until that tree is complete. It is stored in the transaction of the change that it came with. If its tree fails,
it is emitted again, after a rest that grows.

A result is *sent* while it is not known how its tree ended: in a job the driver decides that, after the part of
the state was written. The manifest names the sent results that failed; the next micro-batch that opens the part
learns from it which ones to forget and which ones to emit again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kinesis_spout.storm.components.open_windows import rest_seconds


@dataclass(frozen=True, slots=True)
class ResultKey:
    """Names a result among the keys of a part of the state. No key of a bolt is equal to one."""

    root: int


class Result(NamedTuple):
    stream: str
    values: Sequence[Any]
    task: int | None
    """The task that it was emitted to, if that was chosen by ``emit_direct``."""
    tries: int = 0
    """How often its tree failed."""
    not_before: float | None = None
    """When it is emitted again, in processing time; None: it is sent."""

    def after_failure(self, time: float) -> "Result":
        tries = self.tries + 1
        return self._replace(tries=tries, not_before=time + rest_seconds(tries))
