"""A read in steps: everything but the I/O, so that one thread can serve many reads.

A generator makes the steps. It yields what it waits for, is resumed with the outcome, and returns its result.
So what a getter does about a refused iterator or a throttle is written once, one line after the other; whether
a thread waits for the answer (``run_here``) or a selector (``Prefetcher``) is up to its driver. Between two
yields a generator neither waits nor uses much CPU, except right after it yielded ``MAY_BLOCK``.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from kinesis_spout.model.clock import Clock

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

    from kinesis_spout.kinesis.wire.calls import Exchange

T = TypeVar("T")


class GetRecordsCall(NamedTuple):
    """Yielded to have a call made. Resumed with boto3's reply (see ``RAW_BODY``), or its error is thrown."""

    client: "KinesisClient"
    arguments: dict[str, Any]

    def make(self) -> Any:
        return self.client.get_records(**self.arguments)

    def begin(self) -> "Exchange | None":
        """Begin the call without blocking; None: it must be made."""
        begin = getattr(self.client.get_records, "begin", None)
        return None if begin is None else begin(**self.arguments)

    @property
    def read_timeout_seconds(self) -> float:
        return self.client.meta.config.read_timeout  # type: ignore[attr-defined,no-any-return]


class Pause(NamedTuple):
    """Yielded to be resumed at a time; monotonic."""

    until: float


class MayBlock:
    """The kind of ``MAY_BLOCK``."""


MAY_BLOCK: Final = MayBlock()
"""Yielded before what may wait, or takes a millisecond of CPU or more: up to the next ``GetRecordsCall`` or
``Pause``."""

Step = GetRecordsCall | Pause | MayBlock
Steps = Generator[Step, Any, T]


def run_here(steps: Steps[T], clock: Clock) -> T:
    """Take all steps on the calling thread, and return the result. Raises what the steps raise."""
    try:
        step = next(steps)
        while True:
            if isinstance(step, GetRecordsCall):
                try:
                    answer = step.make()
                except Exception as error:  # noqa: BLE001 - not hidden: the steps decide what it means
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
                continue
            if isinstance(step, Pause):
                clock.sleep(step.until - clock.monotonic())
            step = next(steps)
    except StopIteration as end:
        result: T = end.value
        return result


@dataclass(frozen=True, slots=True)
class Blocking:
    """A function that may block, as a ``Fetch`` of a prefetcher. Equal if the functions are."""

    function: Callable[[], float | None]

    def __call__(self) -> Steps[float | None]:
        yield MAY_BLOCK
        return self.function()
