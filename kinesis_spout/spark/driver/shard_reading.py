"""The reader of an owned shard, as a table.

At its tip the driver polls a shard: a cheap call every poll period, no Spark job while nothing comes. A backlog is
read by executors, in slices. Each of them goes on where the other stopped, and never do both read.

    from, on     POLL      PAGE     LAST_PAGE   BOUND       FAIL    DROP    SLICE        SLICE_OVER   SLICE_ENDS
    TIP          POLLED    -        -           -           -       -       EXECUTORS    -            -
    POLLED       -         TIP      ENDED       AT_BOUND    TIP     TIP     EXECUTORS    -            -
    EXECUTORS    -         -        -           -           -       -       -            TIP          ENDED
    AT_BOUND     -         -        -           -           -       TIP     -            -            -
    ENDED        -         -        -           -           -       TIP     -            -            -

The page of a poll counts only in POLLED. One that comes in another state follows on what was dropped meanwhile, or
on what executors read now, and is ignored: the next poll begins at the right place.
"""

from enum import Enum, auto
from typing import Final


class ReadState(Enum):
    """The reader of a shard. Every owned shard is in exactly one of these states."""

    TIP = auto()
    """The driver, when its next poll is due. None is under way."""
    POLLED = auto()
    """The driver: its poll is under way."""
    EXECUTORS = auto()
    """An executor: a slice that reads is out."""
    AT_BOUND = auto()
    """Nobody in this run: the record that follows ends the shard for it."""
    ENDED = auto()
    """Nobody: the last page of the closed shard was read."""

    # Members are singletons. Enum's own hash is a Python function, and each poll looks two of them up.
    __hash__ = object.__hash__


class ReadEvent(Enum):
    """An event of the reading of a shard."""

    POLL = auto()
    PAGE = auto()
    """The page of a poll has come; more may follow."""
    LAST_PAGE = auto()
    BOUND = auto()
    """A page has come that holds the first record of another run."""
    FAIL = auto()
    """The poll ended with an error."""
    DROP = auto()
    """The driver's records that no slice has carried away are to be read again."""
    SLICE = auto()
    """A slice that reads goes out."""
    SLICE_OVER = auto()
    """It has come back, or its job died, or did not run."""
    SLICE_ENDS = auto()
    """It has read the last page."""

    __hash__ = object.__hash__


_R, _E = ReadState, ReadEvent

TRANSITIONS: Final[dict[tuple[ReadState, ReadEvent], ReadState]] = {
    **{(state, event): state for state in _R for event in _E},
    (_R.TIP, _E.POLL): _R.POLLED,
    (_R.TIP, _E.SLICE): _R.EXECUTORS,
    (_R.POLLED, _E.PAGE): _R.TIP,
    (_R.POLLED, _E.LAST_PAGE): _R.ENDED,
    (_R.POLLED, _E.BOUND): _R.AT_BOUND,
    (_R.POLLED, _E.FAIL): _R.TIP,
    (_R.POLLED, _E.DROP): _R.TIP,
    (_R.POLLED, _E.SLICE): _R.EXECUTORS,
    (_R.EXECUTORS, _E.SLICE_OVER): _R.TIP,
    (_R.EXECUTORS, _E.SLICE_ENDS): _R.ENDED,
    (_R.AT_BOUND, _E.DROP): _R.TIP,
    (_R.ENDED, _E.DROP): _R.TIP,
}
"""Total: every state answers every event. A pair that maps to its own state changes nothing."""
