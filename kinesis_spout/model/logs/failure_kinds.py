"""Logs each kind of failure once, and counts the others."""

import logging
from collections import Counter
from typing import Final

from kinesis_spout.model.handler import RaisedAt

MAX_KINDS: Final = 100
"""How many kinds are distinguished; further ones are counted together."""

OTHERS: Final = "others"

_log = logging.getLogger(__name__)


class FailureKinds:
    """How often code failed, by the exception's type and the line that raised it. Mutable; not thread-safe.

    The log gets the first traceback of each kind. Neither has the texts of exceptions, which may quote a
    record: those are in the dead letters.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, raised: RaisedAt | None) -> None:
        """Count a failure; one that was not raised is not counted here."""
        if raised is None:
            return
        kind = raised.kind
        if kind not in self._counts and len(self._counts) >= MAX_KINDS:
            kind = OTHERS
        self._counts[kind] += 1
        if self._counts[kind] == 1 and kind != OTHERS:
            _log.warning(
                "a handler failed with %s; later failures of this kind are only counted\n%s",
                kind,
                raised.traceback,
            )

    @property
    def counts(self) -> dict[str, int]:
        """How often each kind came, the most frequent first."""
        return dict(self._counts.most_common())
