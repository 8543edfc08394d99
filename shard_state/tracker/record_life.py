"""The life of a handed-out record, as a table.

The states of a record and what may happen to it. Pairs that change nothing are late or duplicate reports:
defined, harmless, never an exception (invariant 5).

    from, on        ACK        FAIL      WITHDRAW  EXHAUST    DEAD_LETTER  REDELIVER
    IN_FLIGHT       FINISHED   WAITING   WAITING   EXHAUSTED  -            -
    WAITING         FINISHED   -         -         EXHAUSTED  -            IN_FLIGHT
    EXHAUSTED       FINISHED   -         -         -          FINISHED     -
    FINISHED        -          -         -         -          -            -

REDELIVER counts an attempt; WITHDRAW takes it back, for a delivery that did not reach the handler. So the
deliveries that did reach it are numbered 1, 2, 3 …: the attempt tells them apart (invariant 17).
"""

from enum import Enum, auto
from typing import Final


class RecordState(Enum):
    """The states of a handed-out record. Every such record is in exactly one of them (invariant 2)."""

    IN_FLIGHT = auto()
    WAITING = auto()
    EXHAUSTED = auto()
    FINISHED = auto()

    # Members are singletons. Enum's own hash is a Python function, and each event looks one of them up.
    __hash__ = object.__hash__


class RecordEvent(Enum):
    """The events of a handed-out record."""

    ACK = auto()
    FAIL = auto()
    """It failed, or timed out."""
    WITHDRAW = auto()
    EXHAUST = auto()
    DEAD_LETTER = auto()
    REDELIVER = auto()

    __hash__ = object.__hash__


_S, _E = RecordState, RecordEvent

TRANSITIONS: Final[dict[tuple[RecordState, RecordEvent], RecordState]] = {
    **{(state, event): state for state in _S for event in _E},
    (_S.IN_FLIGHT, _E.ACK): _S.FINISHED,
    (_S.IN_FLIGHT, _E.FAIL): _S.WAITING,
    (_S.IN_FLIGHT, _E.WITHDRAW): _S.WAITING,
    (_S.IN_FLIGHT, _E.EXHAUST): _S.EXHAUSTED,
    (_S.WAITING, _E.ACK): _S.FINISHED,
    (_S.WAITING, _E.EXHAUST): _S.EXHAUSTED,
    (_S.WAITING, _E.REDELIVER): _S.IN_FLIGHT,
    (_S.EXHAUSTED, _E.ACK): _S.FINISHED,
    (_S.EXHAUSTED, _E.DEAD_LETTER): _S.FINISHED,
}
"""Total: every state answers every event. A pair that maps to its own state changes nothing."""
