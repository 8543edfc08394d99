"""Reports the circuit breaker's pauses in the log and in ZooKeeper, where operators can end them."""

import logging

from kinesis_spout.model.logs import FailureKinds
from kinesis_spout.ports import Coordinator
from kinesis_spout.settings import SpoutConfig
from shard_state import BreakerEvent, BreakerNotice, BreakerPause

_log = logging.getLogger(__name__)


class PauseReports:
    """Mutable; one thread's."""

    def __init__(self, config: SpoutConfig, coordinator: Coordinator) -> None:
        self._config = config
        self._coordinator = coordinator
        self.are_shown = False

    def log(self, notice: BreakerNotice, mostly: str) -> None:
        if notice.event is BreakerEvent.TRIPPED:
            _log.warning(
                "paused: %d of the last %d outcomes are failures%s. Nothing new is delivered and nothing is given "
                "up; a single record is tried in %.1f s, and then at growing intervals. The first that succeeds "
                "ends the pause, and so does `kinesis-spout resume --stream %s --app %s`",
                notice.failed,
                notice.outcomes,
                mostly,
                notice.wait_seconds,
                self._config.stream,
                self._config.app,
            )
        elif notice.event is BreakerEvent.PROBE_FAILED:
            _log.info(
                "still paused: the record that was tried failed as well (%d by now); the next is tried in %.1f s",
                notice.probes_failed,
                notice.wait_seconds,
            )
        elif notice.event is BreakerEvent.PROBE_PASSED:
            _log.info("resumed: a record that was tried succeeded")
        else:
            _log.info("resumed, as an operator said")

    def show(self, pause: BreakerPause | None, mostly: str) -> bool:
        """Show operators the pause, or that there is none. True if an operator has ended it."""
        if pause is not None:
            resumed = self._coordinator.show_pause(pause_text(pause) + mostly)
            self.are_shown = not resumed
            return resumed
        if self.are_shown:
            self._coordinator.end_pause()
            self.are_shown = False
        return False


def pause_text(pause: BreakerPause) -> str:
    tried = f"; {pause.probes_failed} tried since" if pause.probes_failed else ""
    return f"paused: {pause.failed} of the last {pause.outcomes} outcomes are failures{tried}"


def most_frequent(failures: FailureKinds) -> str:
    """The most frequent kind of failure, as the rest of a sentence; empty if none is known."""
    kind = next(iter(failures.counts), None)
    return "" if kind is None else f" (mostly {kind})"
