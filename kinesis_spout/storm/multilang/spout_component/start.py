"""The start of a spout, which takes as long as Kinesis and ZooKeeper do, up to a minute if they do not answer.

A host gives up a component that says nothing for ``topology.subprocess.timeout.secs``, 30 s. So the start has a
thread of its own, and the host is answered meanwhile.
"""

import threading

from kinesis_spout.plain.streams_spout import StreamsSpout


class SpoutStart:
    """The first ``activate`` of a spout. Mutable; the thread ends with the process.

    Args:
        spout: nobody else may activate or close it until the start is over.
    """

    def __init__(self, spout: StreamsSpout) -> None:
        self._spout = spout
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="start of the spout", daemon=True)
        self._thread.start()

    def is_over(self, wait_seconds: float = 0.0) -> bool:
        """Wait for it, so long at most; tell whether it is over, well or not."""
        self._thread.join(wait_seconds)
        return not self._thread.is_alive()

    def raise_failure(self) -> None:
        """Raise what it raised, once; not before it is over."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        try:
            self._spout.activate()
        except BaseException as error:  # noqa: BLE001 - raised again on the component's own thread
            self._error = error
