"""``StreamsSpout``, asked by a host: each command is one call of it.

The host's message ids are the spout's own, so a topology's acks and fails find their delivery, also after the
process was started again; one that belongs to nothing any more changes nothing. Retries, their limit, dead letters
and checkpoints are the spout's, not the host's.

What may pass is a line in the host's log. What no retry mends is reported as an error and ends the process with
exit code 1; the host starts it again, and it goes on at what is stored.

With no record to emit it rests before it answers, as the protocol asks of spouts: hosts ask again at once. It
rests a little longer each time, until there is something to do.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from kinesis_spout.model.errors import InvalidConfig, KinesisSpoutError, SpoutClosed
from kinesis_spout.plain.record_spout import Emitted
from kinesis_spout.plain.streams_spout import StreamsSpout
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.storm.multilang.component.component import WARN, GiveUp
from kinesis_spout.storm.multilang.component.spout import Spout
from kinesis_spout.storm.multilang.sendable import UnsendableValue
from kinesis_spout.storm.multilang.spout_component.record_values import RecordValues
from kinesis_spout.storm.multilang.spout_component.start import SpoutStart

_LOGGER: Final = "kinesis_spout"
_REST_SECONDS: Final = 0.001
_MOST_REST_SECONDS: Final = 0.016
_START_SECONDS: Final = 5.0
"""So long the first ``activate`` waits for the start, which takes less as a rule."""
_END_SECONDS: Final = 1.0


class KinesisSpoutComponent(Spout):
    """Reads a Kinesis stream for a topology. Mutable; one thread's.

    It begins to read at the first ``activate``, or at a ``next`` of a host that says neither. The host is answered
    also while Kinesis or ZooKeeper is not there.

    Args:
        configure: makes the settings, with the topology's configuration to look into.
        values: what a tuple has.
        log_level: the least that goes to the host's log, as a level of ``logging``.
        sleep: rests for so many seconds.
    """

    def __init__(
        self,
        configure: Callable[[Mapping[str, Any]], SpoutConfig],
        values: RecordValues | None = None,
        log_level: int = logging.INFO,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._sleep = sleep
        self._rest_seconds = _REST_SECONDS
        self._configure = configure
        self._values = values or RecordValues()
        self._log_level = log_level
        self._spout: StreamsSpout | None = None
        self._start: SpoutStart | None = None
        self._is_active: bool | None = None
        """None: the host has not said."""

    def initialize(self, conf: dict[str, Any], context: dict[str, Any]) -> None:
        """Take the settings; nothing is opened yet."""
        del context
        self.host_log.setFormatter(logging.Formatter("%(message)s"))
        logger = logging.getLogger(_LOGGER)
        logger.addHandler(self.host_log)
        logger.setLevel(self._log_level)
        try:
            self._spout = StreamsSpout(self._configure(conf), scheme=self._values)
        except InvalidConfig as error:
            raise GiveUp(str(error)) from error

    def close(self) -> None:
        """Store what is finished, and give the shards up.

        Raises:
            KinesisSpoutError: that could not be done. Nothing is lost: the records concerned come again.
        """
        try:
            # A start that still waits for an answer ends with the process: nothing was read.
            if self._spout is not None and (self._start is None or self._start.is_over(_END_SECONDS)):
                self._spout.close()
        finally:
            logging.getLogger(_LOGGER).removeHandler(self.host_log)

    def activate(self) -> None:
        """Begin to read, or go on. A start that takes long goes on while the host is answered."""
        self._is_active = True
        if self._start is not None:
            if self._has_started():
                self._opened.activate()
            return
        self._start = SpoutStart(self._opened)
        if not self._has_started(_START_SECONDS):
            self.log("Kinesis or ZooKeeper has not answered yet: no record can be read before", WARN)

    def deactivate(self) -> None:
        """Emit nothing until ``activate``. Acks, fails, time-outs and commits go on."""
        self._is_active = False
        if self._has_started():
            self._opened.deactivate()

    def next_tuple(self) -> None:
        """Emit the next record, if there is one now."""
        if self._is_active is None:
            self.activate()  # old hosts say so only by asking
        if not self._is_active or not self._has_started():
            self._rest()
            return
        try:
            emitted = self._opened.next_tuple()
        except KinesisSpoutError as error:
            if not error.retriable:
                raise GiveUp(str(error)) from error
            self.log(f"tried again: {error}", WARN)
            self._rest()
            return
        if emitted is None:
            self._rest()
        else:
            self._rest_seconds = _REST_SECONDS
            self._emit_record(emitted)

    def ack(self, message_id: Any) -> None:
        """Finish a record."""
        self._settle(lambda spout: spout.ack(message_id), message_id)

    def fail(self, message_id: Any) -> None:
        """Fail a delivery."""
        self._settle(lambda spout: spout.fail(message_id, "failed in the topology, or timed out"), message_id)

    def _has_started(self, wait_seconds: float = 0.0) -> bool:
        """Tell whether the spout is open; wait for its start so long. One that failed ends the process."""
        if self._start is None or not self._start.is_over(wait_seconds):
            return False
        try:
            self._start.raise_failure()
        except KinesisSpoutError as error:
            raise GiveUp(str(error)) from error  # a spout whose start failed is closed
        return True

    def _rest(self) -> None:
        self._sleep(self._rest_seconds)
        self._rest_seconds = min(2 * self._rest_seconds, _MOST_REST_SECONDS)

    def _emit_record(self, emitted: Emitted) -> None:
        try:
            self.emit(emitted.values, id=emitted.message_id)
        except UnsendableValue as error:
            self._opened.fail(emitted.message_id, error)

    def _settle(self, settle: Callable[[StreamsSpout], bool], message_id: Any) -> None:
        self._rest_seconds = _REST_SECONDS
        if not isinstance(message_id, str):
            self.log(f"expected a message id of this spout, got {message_id!r}: ignored", WARN)
            return
        try:
            settle(self._opened)
        except SpoutClosed:
            return  # not begun yet: the id is of a process before this one, whose deliveries come again
        except ValueError as error:
            self.log(f"{error}: ignored", WARN)

    @property
    def _opened(self) -> StreamsSpout:
        assert self._spout is not None, "the host's commands come after the hand-shake"
        return self._spout
