"""One key with who works at it and who waits: a value, and what each event makes of it. Pure.

A *token* names an admission. What ends is looked up by its token, so whoever was evicted ends nothing.
"""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from kinesis_spout.recipes.coalescing.table import TABLE, Answer, Event, State

PayloadT = TypeVar("PayloadT")
TokenT = TypeVar("TokenT")


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
    """Whoever works has ended: DONE, FAILED or EXPIRED. Answers LEAVE, PROMOTE, GO_ON, HAND_BACK or REFUSE.

    Args:
        line: the key.
        token: of who works.
        event: how it ended.
        fresh: the token to go on with, as a new admission.
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
    """Whoever waits gives up, or has died with its process. Answers LEAVE or REFUSE.

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
