"""The host's side of the conversation with one component, as two tables.

    bolt    STARTING --pid--> READY --(tuples out; emits, acks, fails in)--> READY
    spout   STARTING --pid--> READY --command sent--> ANSWERING --sync--> READY

    either  --ended--> DIED      --timed out--> HUNG      --nonsense--> BROKEN

DIED, HUNG and BROKEN are final: a component that is started again gets a new conversation. Invalid output never
changes a state: it is put aside. NONSENSE is a message of the protocol that cannot be true, such as an ack of an
id that was never sent; more invalid output than the host bears; and invalid output that can have been an emit,
whose tuple is lost though the component does not know.

Time, pending tuples and their ids are the host's: it reports a TIMED_OUT when nothing at all has been heard for
``topology.subprocess.timeout.secs``, and NONSENSE when an id is not one that it sent.
"""

from enum import Enum, auto
from typing import Final

from kinesis_spout.storm.multilang import protocol
from kinesis_spout.storm.multilang.protocol import Message


class TalkState(Enum):
    STARTING = auto()
    """The hand-shake was sent, or will be. Its answer is due."""
    READY = auto()
    """A bolt can be given tuples; a spout a command."""
    ANSWERING = auto()
    """A spout got a command; what it emits until its sync belongs to the command. Bolts are never here."""
    DIED = auto()
    HUNG = auto()
    BROKEN = auto()


class TalkEvent(Enum):
    # The host does
    COMMAND_SENT = auto()
    """A tuple, a tick or a heart-beat to a bolt; next, ack, fail, activate or deactivate to a spout."""
    TASK_IDS_SENT = auto()
    # The component says
    PID = auto()
    EMIT = auto()
    ACK = auto()
    FAIL = auto()
    SYNC = auto()
    REPORT = auto()
    """A log line, an error, a metric."""
    INVALID_OUTPUT = auto()
    NONSENSE = auto()
    # Its outcome
    TIMED_OUT = auto()
    ENDED = auto()


FAILED: Final = frozenset({TalkState.DIED, TalkState.HUNG, TalkState.BROKEN})
"""Final states: the component is started again, and what it had been given fails."""

Table = dict[tuple[TalkState, TalkEvent], TalkState]

_S, _E = TalkState, TalkEvent


def _table(own: Table) -> Table:
    """The transitions that bolts and spouts have in common; a pair in ``own`` wins."""
    living = [state for state in _S if state not in FAILED]
    too_early = (_E.EMIT, _E.ACK, _E.FAIL, _E.SYNC, _E.COMMAND_SENT, _E.TASK_IDS_SENT)
    return {
        **{(state, event): state for state in _S for event in _E},
        **{(state, _E.ENDED): _S.DIED for state in living},
        **{(state, _E.TIMED_OUT): _S.HUNG for state in living},
        **{(state, _E.NONSENSE): _S.BROKEN for state in living},
        **{(state, _E.PID): _S.BROKEN for state in living},
        **{(_S.STARTING, event): _S.BROKEN for event in too_early},
        (_S.STARTING, _E.PID): _S.READY,
        **own,
    }


BOLT: Final = _table({})
"""Total: every state of a bolt answers every event; a pair that maps to its own state changes nothing."""

SPOUT: Final = _table(
    {
        (_S.READY, _E.COMMAND_SENT): _S.ANSWERING,
        (_S.ANSWERING, _E.COMMAND_SENT): _S.BROKEN,
        (_S.ANSWERING, _E.SYNC): _S.READY,
        **{(state, event): _S.BROKEN for state in (_S.READY, _S.ANSWERING) for event in (_E.ACK, _E.FAIL)},
    }
)
"""Total, as ``BOLT``. A spout can emit, log and sync before it is asked (some have threads): an unexpected
sync means nothing, and an emit counts. It has nothing to ack or fail."""

_EVENTS: Final[dict[type, TalkEvent]] = {
    protocol.Pid: _E.PID,
    protocol.Emit: _E.EMIT,
    protocol.Ack: _E.ACK,
    protocol.Fail: _E.FAIL,
    protocol.Sync: _E.SYNC,
    protocol.Log: _E.REPORT,
    protocol.Error: _E.REPORT,
    protocol.Metrics: _E.REPORT,
}


def said(message: Message) -> TalkEvent:
    """The event of a component's message. Messages that only hosts send are NONSENSE."""
    return _EVENTS.get(type(message), _E.NONSENSE)
