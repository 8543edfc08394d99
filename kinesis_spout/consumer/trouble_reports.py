"""Reports that the handler is at fault, in the log and in ZooKeeper, where operators can let deliveries flow."""

import logging

from kinesis_spout.model.logs import NO_EXCEPTION, FailureKinds
from kinesis_spout.ports import Coordinator
from kinesis_spout.settings import SpoutConfig
from shard_state import Trouble

_log = logging.getLogger(__name__)


class TroubleReports:
    """Mutable; one thread's."""

    def __init__(self, config: SpoutConfig, coordinator: Coordinator) -> None:
        self._config = config
        self._coordinator = coordinator
        self.are_shown = False
        self._said_slowed = False

    def show(self, trouble: Trouble | None, mostly: str) -> bool:
        """Show people the trouble, or that there is none. True if an operator wants deliveries to flow."""
        if trouble is None:
            if self.are_shown:
                self._coordinator.end_pause()
                self.are_shown = self._said_slowed = False
                _log.info("the handler works again: deliveries flow, and failures count")
            return False
        if not self.are_shown or (trouble.slowed and not self._said_slowed):
            self.are_shown, self._said_slowed = True, trouble.slowed
            self._log(trouble, mostly)
        return self._coordinator.show_pause(trouble_text(trouble) + mostly)

    def _log(self, trouble: Trouble, mostly: str) -> None:
        _log.warning(
            "%s%s. Records are not given up for that%s",
            trouble_text(trouble),
            mostly,
            f"; `kinesis-spout resume --stream {self._config.stream} --app {self._config.app}` lets them flow"
            if trouble.slowed
            else "",
        )


def trouble_text(trouble: Trouble) -> str:
    what = "deliveries slowed: the handler fails" if trouble.slowed else "the handler fails"
    return f"{what} for {trouble.failing:.0%} of the records, since {trouble.seconds:.0f} s"


def most_frequent(failures: FailureKinds) -> str:
    """The most frequent kind of failure, as the rest of a sentence; empty if none is known."""
    kind = next((kind for kind in failures.counts if kind != NO_EXCEPTION), None)
    return "" if kind is None else f" (mostly {kind})"
