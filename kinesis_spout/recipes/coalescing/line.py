"""One key with who works at it and who waits: a value, and what each event makes of it. A pure, total table.

    INIT      nobody works at the key, nobody waits: nothing is kept of it
    PROCESS   one works
    BLOCK     one works, one waits with the newest payload
    LEFT      one works; the newest payload waits, but who waited with it has gone: it is left to the one at work

A request while one waits is declined, and the one that waits is given its payload: it would see the newest state
anyway. The one that was declined relies on that. So if the one that waits gives up then, the payload stays, and
the one at work goes on with it.

A *token* names an admission. What ends is looked up by its token, so one that was evicted ends nothing.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar

PayloadT = TypeVar("PayloadT")
TokenT = TypeVar("TokenT")


class State(Enum):
    """Of a key."""

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
    """What follows for the one that caused the event."""

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


class Line(NamedTuple, Generic[TokenT, PayloadT]):
    """A key that is not idle."""

    state: State
    worker: TokenT
    """Who works."""
    waiting: TokenT | None = None
    """Who waits; None unless the state is BLOCK."""
    newest: PayloadT | None = None
    """What waits, in BLOCK and LEFT. In PROCESS: what the one that works had waited with, if it had."""
    declined: int = 0
    """How many requests were declined in favour of that."""


class Moved(NamedTuple, Generic[TokenT, PayloadT]):
    """What an event made of a key."""

    line: Line[TokenT, PayloadT] | None
    """None: the key is idle now."""
    answer: Answer


Move = Callable[[Any, Any, Any], Moved[Any, Any]]
"""What a request makes of a line: `request` or `request_own`."""


def request(line: Line[TokenT, PayloadT] | None, token: TokenT, payload: PayloadT) -> Moved[TokenT, PayloadT]:
    """Somebody comes with a payload. Answers ACCEPT, WAIT or DECLINE."""
    if line is None:
        state, answer = TABLE[State.INIT, Event.REQUEST]
        return Moved(Line(state, token), answer)
    state, answer = TABLE[line.state, Event.REQUEST]
    if answer is Answer.DECLINE:
        return Moved(line._replace(newest=payload, declined=line.declined + 1), answer)
    # What was left is superseded by what comes, which those who were declined rely on now.
    declined = line.declined if line.state is State.LEFT else 0
    return Moved(Line(state, line.worker, token, payload, declined), answer)


def request_own(
    line: Line[TokenT, PayloadT] | None, token: TokenT, payload: PayloadT
) -> Moved[TokenT, PayloadT]:
    """The one that works comes itself, with a payload for when it is done: it cannot wait for its own end.

    Answers ACCEPT, where its turn was over, or DECLINE: the payload is left to it, or given to the one that waits.
    """
    moved = request(line, token, payload)
    if moved.answer is not Answer.WAIT:
        return moved
    return Moved(withdraw(moved.line, token, is_dead=True).line, Answer.DECLINE)


def end(
    line: Line[TokenT, PayloadT] | None, token: TokenT, event: Event, fresh: TokenT | None = None
) -> Moved[TokenT, PayloadT]:
    """The one that works has ended: DONE, FAILED or EXPIRED. A turn that goes on gets the ``fresh`` token, if any.

    Answers LEAVE, PROMOTE, GO_ON, HAND_BACK or REFUSE.
    """
    if line is None or line.worker != token:
        return Moved(line, Answer.REFUSE)
    state, answer = TABLE[line.state, event]
    if answer is Answer.PROMOTE:
        assert line.waiting is not None
        return Moved(Line(state, line.waiting, None, line.newest, line.declined), answer)
    if answer is Answer.GO_ON:
        return Moved(Line(state, token if fresh is None else fresh), answer)
    return Moved(None, answer)


def withdraw(
    line: Line[TokenT, PayloadT] | None, token: TokenT, *, is_dead: bool = False
) -> Moved[TokenT, PayloadT]:
    """The one that waits gives up, or has died with its process. Answers LEAVE or REFUSE.

    The payload of one that died stays, also where nobody else relies on it: nobody was told that it is not
    handled.
    """
    if line is None or line.waiting != token:
        return Moved(line, Answer.REFUSE)
    event = Event.DESERTED if is_dead or line.declined else Event.WITHDRAWN
    state, answer = TABLE[line.state, event]
    if event is Event.WITHDRAWN:
        return Moved(Line(state, line.worker), answer)
    return Moved(line._replace(state=state, waiting=None), answer)
