"""The state of one key, with its current and waiting requests, and each event's effect. A pure, total table.

    INIT      no request works or waits: nothing is kept of the key
    PROCESS   one works
    BLOCK     one works, one waits with the newest payload
    LEFT      one works; the newest payload waits, but its request has gone: it is left to the one at work

A request while one waits is declined, and the waiting one gets its payload: it would see the newest state
anyway. The declined request relies on that. So if the waiting one then gives up, the payload stays, and the
one at work continues with it.

A *token* names an admission. Ends are looked up by token, so an evicted request ends nothing.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar

PayloadT = TypeVar("PayloadT")
TokenT = TypeVar("TokenT")


class State(Enum):
    __hash__ = object.__hash__  # each is one object; hashing its name takes longer than all else here

    INIT = auto()
    PROCESS = auto()
    BLOCK = auto()
    LEFT = auto()


class Event(Enum):
    __hash__ = object.__hash__

    REQUEST = auto()
    """A request comes with a payload."""
    DONE = auto()
    """The one that works has handled its payload."""
    FAILED = auto()
    """The one that works has given up."""
    EXPIRED = auto()
    """The lease of the one that works is over, and another request wants the key."""
    WITHDRAWN = auto()
    """The one that waits gives up, with its own payload."""
    DESERTED = auto()
    """The one that waits gives up, or its process died, with a payload that others rely on."""


class Answer(Enum):
    """The consequence for the request that caused the event."""

    ACCEPT = auto()
    """Work at once."""
    WAIT = auto()
    """Work when the one that works has ended."""
    DECLINE = auto()
    """Leave: the one that waits has the payload now, and drops its own."""
    LEAVE = auto()
    """Leave: nothing else follows."""
    PROMOTE = auto()
    """Leave: the turn of the one that waits has come."""
    GO_ON = auto()
    """Continue, with the payload that was left."""
    HAND_BACK = auto()
    """Leave: no request is there for the payload that was left. It is handed back."""
    REFUSE = auto()
    """The turn was another request's by then, or over. Nothing changes."""


class Step(NamedTuple):
    state: State
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
    waiting: TokenT | None = None
    """The admission that waits; None unless the state is BLOCK."""
    newest: PayloadT | None = None
    """The payload that waits, in BLOCK and LEFT. In PROCESS: what the working one waited with, if it had."""
    declined: int = 0
    """The number of requests declined in favour of that."""


class Moved(NamedTuple, Generic[TokenT, PayloadT]):
    """The effect of an event on a key."""

    line: Line[TokenT, PayloadT] | None
    """None: the key is idle now."""
    answer: Answer


Move = Callable[[Any, Any, Any], Moved[Any, Any]]
"""The effect of a request on a line: `request` or `request_own`."""


def request(line: Line[TokenT, PayloadT] | None, token: TokenT, payload: PayloadT) -> Moved[TokenT, PayloadT]:
    """A request comes with a payload. Answers ACCEPT, WAIT or DECLINE."""
    if line is None:
        state, answer = TABLE[State.INIT, Event.REQUEST]
        return Moved(Line(state, token), answer)
    state, answer = TABLE[line.state, Event.REQUEST]
    if answer is Answer.DECLINE:
        return Moved(line._replace(newest=payload, declined=line.declined + 1), answer)
    # The new payload supersedes what was left; the declined requests rely on it now.
    declined = line.declined if line.state is State.LEFT else 0
    return Moved(Line(state, line.worker, token, payload, declined), answer)


def request_own(
    line: Line[TokenT, PayloadT] | None, token: TokenT, payload: PayloadT
) -> Moved[TokenT, PayloadT]:
    """The one that works makes a request itself, for when it is done: it cannot wait for its own end.

    Answers ACCEPT, if its turn was over, or DECLINE: the payload is left to it, or given to the one that waits.
    """
    moved = request(line, token, payload)
    if moved.answer is not Answer.WAIT:
        return moved
    return Moved(withdraw(moved.line, token, is_dead=True).line, Answer.DECLINE)


def end(
    line: Line[TokenT, PayloadT] | None, token: TokenT, event: Event, fresh: TokenT | None = None
) -> Moved[TokenT, PayloadT]:
    """The one that works has ended: DONE, FAILED or EXPIRED. Continuing, it gets the ``fresh`` token, if any.

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

    The payload of one that died stays, even if no other request relies on it: no caller has learnt that it is
    not handled.
    """
    if line is None or line.waiting != token:
        return Moved(line, Answer.REFUSE)
    event = Event.DESERTED if is_dead or line.declined else Event.WITHDRAWN
    state, answer = TABLE[line.state, event]
    if event is Event.WITHDRAWN:
        return Moved(Line(state, line.worker), answer)
    return Moved(line._replace(state=state, waiting=None), answer)
