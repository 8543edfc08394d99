"""A handler that is called for several records at a time; what runs it is made on the executor."""

from collections.abc import Callable, Sequence
from typing import Any

from kinesis_spout.model.record import Record
from kinesis_spout.model.unfinished_work import is_coroutine_function, refuse_unfinished
from kinesis_spout.spark.concurrency.crew import LookUp
from kinesis_spout.spark.concurrency.handler_loop import HandlerLoop
from kinesis_spout.spark.concurrency.handler_threads import HandlerThreads
from kinesis_spout.spark.concurrency.record_run import RecordRun


def needs_concurrency(
    handler: Callable[..., object], concurrency: int, timeout_seconds: float | None
) -> bool:
    """Tell whether a handler cannot just be called, on the task's own thread."""
    return concurrency > 1 or timeout_seconds is not None or is_coroutine_function(handler)


class ConcurrentCalls:
    """Calls ``handler(scheme(record))`` for several records at a time. Picklable. Mutable; one run at a time.

    Args:
        handler: a plain function is called on threads, a coroutine function in an event loop.
        scheme: prepares what the handler is given; called where the handler is.
        concurrency: the most records under way, of one run.
        timeout_seconds: how long the handler may take for a record; None: as long as it likes.
    """

    def __init__(
        self,
        handler: Callable[[Any], Any],
        scheme: Callable[[Record], Any],
        *,
        concurrency: int,
        timeout_seconds: float | None = None,
    ) -> None:
        self._handler = handler
        self._scheme = scheme
        self.concurrency = concurrency
        self._timeout_seconds = timeout_seconds
        self._runner: HandlerLoop | HandlerThreads | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_runner": None}

    def __call__(self, run: RecordRun, records: Sequence[Record], look_up: LookUp) -> None:
        """Hand over the records of a run, until it is over.

        Args:
            run: of which at most ``concurrency`` records are under way at a time.
            records: of the run.
            look_up: called about ten times a second while records end; True: no further record may begin.
        """
        if self._runner is None:
            self._runner = self._made()
        self._runner.carry_out(run, records, look_up)

    def _made(self) -> HandlerLoop | HandlerThreads:
        handler, scheme = self._handler, self._scheme
        if is_coroutine_function(handler):

            async def call_in_loop(record: Record) -> None:
                returned = await handler(scheme(record))
                if returned is not None:
                    refuse_unfinished(returned)

            return HandlerLoop(
                call_in_loop, concurrency=self.concurrency, timeout_seconds=self._timeout_seconds
            )

        def call(record: Record) -> None:
            returned = handler(scheme(record))
            if returned is not None:
                refuse_unfinished(returned)

        return HandlerThreads(call, concurrency=self.concurrency, timeout_seconds=self._timeout_seconds)
