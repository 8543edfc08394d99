"""What a request, and the end of what works, mean for one key: a pure, total table.

    INIT      nobody works at the key, nobody waits: nothing is kept of it
    PROCESS   one works
    BLOCK     one works, one waits with the newest payload
    LEFT      one works; the newest payload waits, but who waited with it has gone: it is left to the one at work

A request while one waits is declined, and the one that waits is given its payload: it would see the newest state
anyway. Whoever was declined relies on that. So if the one that waits gives up then, the payload stays, and the one
at work goes on with it.
"""

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Final, NamedTuple


class State(Enum):
    """How a key stands."""

    __hash__ = object.__hash__  # each is one object; to hash its name takes longer than all else here

    INIT = auto()
    PROCESS = auto()
    BLOCK = auto()
    LEFT = auto()


class Event(Enum):
    """What happens to a key."""

    __hash__ = object.__hash__

    REQUEST = auto()
    """Somebody comes with a payload."""
    DONE = auto()
    """The one that works has handled its payload."""
    FAILED = auto()
    """The one that works has given up."""
    EXPIRED = auto()
    """The lease of the one that works is over, and somebody else wants the key."""
    WITHDRAWN = auto()
    """The one that waits gives up, with a payload of its own."""
    DESERTED = auto()
    """The one that waits gives up, or its process died, with a payload that others rely on."""


class Answer(Enum):
    """What follows for whoever caused the event."""

    ACCEPT = auto()
    """Work at once."""
    WAIT = auto()
    """Work when the one that works has ended."""
    DECLINE = auto()
    """Go: the one that waits has the payload now, and drops the one that it had."""
    LEAVE = auto()
    """Go: nothing else follows."""
    PROMOTE = auto()
    """Go: it is the turn of the one that waits."""
    GO_ON = auto()
    """Work on, with the payload that was left."""
    HAND_BACK = auto()
    """Go: nobody is there for the payload that was left. It is given back."""
    REFUSE = auto()
    """It was somebody else's turn by then, or it was over. Nothing changes."""


class Step(NamedTuple):
    """One cell of the table."""

    state: State
    """Which follows."""
    answer: Answer


def _table() -> dict[tuple[State, Event], Step]:
    table = {(state, event): Step(state, Answer.REFUSE) for state in State for event in Event}
    table |= {
        (State.INIT, Event.REQUEST): Step(State.PROCESS, Answer.ACCEPT),
        (State.PROCESS, Event.REQUEST): Step(State.BLOCK, Answer.WAIT),
        (State.BLOCK, Event.REQUEST): Step(State.BLOCK, Answer.DECLINE),
        (State.LEFT, Event.REQUEST): Step(State.BLOCK, Answer.WAIT),
        (State.BLOCK, Event.WITHDRAWN): Step(State.PROCESS, Answer.LEAVE),
        (State.BLOCK, Event.DESERTED): Step(State.LEFT, Answer.LEAVE),
        (State.LEFT, Event.DONE): Step(State.PROCESS, Answer.GO_ON),
        (State.LEFT, Event.FAILED): Step(State.INIT, Answer.HAND_BACK),
        (State.LEFT, Event.EXPIRED): Step(State.INIT, Answer.HAND_BACK),
    }
    for event in (Event.DONE, Event.FAILED, Event.EXPIRED):
        table[State.PROCESS, event] = Step(State.INIT, Answer.LEAVE)
        table[State.BLOCK, event] = Step(State.PROCESS, Answer.PROMOTE)
    return table


TABLE: Final[Mapping[tuple[State, Event], Step]] = MappingProxyType(_table())
"""Total: every event in every state has its cell."""
