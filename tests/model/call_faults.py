"""What may happen to a call to the outside."""

from enum import Enum, auto
from typing import Final

from kinesis_spout.model.errors import DeadLetterError, KinesisSpoutError, StoreUnavailable, Unavailable


class Fault(Enum):
    """What a call meets."""

    REFUSED = auto()
    """It does nothing, and raises an error that may pass."""
    ANSWER_LOST = auto()
    """It takes effect, and raises such an error."""
    ITERATORS_EXPIRED = auto()
    """Before it all iterators expire."""
    CRASHES_BEFORE = auto()
    """Its process is killed before it."""
    CRASHES_AFTER = auto()
    """Its process is killed when it has taken effect."""
    PAUSES = auto()
    """Its process sleeps before it for longer than its session lives, while others go on."""

    HANGS = auto()
    """Its process hangs before it, for longer than its shards may be awaited, while its session lives on."""

    @property
    def costs_ownership(self) -> bool:
        """Whether the process may lose its shards, so that what it had not stored is handled again."""
        return self in (Fault.CRASHES_BEFORE, Fault.CRASHES_AFTER, Fault.PAUSES, Fault.HANGS)


_NEVER_RAISES: Final = frozenset(
    {"handler", "coordinator.release", "coordinator.close", "group.close", "dead_letters.close"}
)
_CHANGES: Final = frozenset(
    {
        "store.open",
        "store.commit",
        "coordinator.join",
        "coordinator.say",
        "coordinator.acquire",
        "group.assign",
        "dead_letters.write",
    }
)


def faults_of(call: str) -> list[Fault]:
    """Name the faults that a call may meet, as its port says. Any may hang besides."""
    faults = [Fault.CRASHES_BEFORE, Fault.CRASHES_AFTER, Fault.PAUSES]
    if call not in _NEVER_RAISES:
        faults.append(Fault.REFUSED)
    if call in _CHANGES:
        faults.append(Fault.ANSWER_LOST)
    if call == "kinesis.get_records":
        faults.append(Fault.ITERATORS_EXPIRED)
    return faults


def error_of(call: str) -> KinesisSpoutError:
    if call.startswith("kinesis."):
        return Unavailable(f"InternalFailure of {call} (injected)")
    if call.startswith("dead_letters."):
        return DeadLetterError(f"{call} failed (injected)")
    return StoreUnavailable(f"{call} was not answered (injected)")


class Crashed(BaseException):
    """The process is dead: nothing of it runs any more."""
