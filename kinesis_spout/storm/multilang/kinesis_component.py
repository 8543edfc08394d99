"""``RecordSpout``, asked by a host: each command is one call of it.

The host's message ids are the spout's own, so a topology's acks and fails find their delivery, also after the
process was started again; an ack or fail without a delivery changes nothing. Retries, their limit, dead
letters and checkpoints are the spout's, not the host's.

A passing error is a line in the host's log. An error that no retry mends is reported and ends the process
with exit code 1; the host starts it again, and it continues from the stored progress.

With no record to emit it rests before it answers, as the protocol asks of spouts: hosts ask again at once. It
rests a little longer each time, until there is something to do.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import pybase64

from kinesis_spout.model.errors import InvalidConfig, KinesisSpoutError, SpoutClosed
from kinesis_spout.model.record import Record
from kinesis_spout.model.scheme import decoded_json
from kinesis_spout.plain.record_spout import RecordSpout
from kinesis_spout.plain.stream_tuples import Emitted
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.storm.multilang.bolts_and_spouts import Spout
from kinesis_spout.storm.multilang.component import WARN, CannotContinue
from kinesis_spout.storm.multilang.frames import UnsendableValue

_LOGGER: Final = "kinesis_spout"
_REST_SECONDS: Final = 0.001
_MOST_REST_SECONDS: Final = 0.016
_START_SECONDS: Final = 5.0
"""The time that the first ``activate`` waits for the start, which usually takes less."""
_END_SECONDS: Final = 1.0


class DataForm(StrEnum):
    """Forms in which a record's data travels: the protocol's JSON carries no bytes."""

    TEXT = "text"
    """As text; data that is not UTF-8 fails its record."""
    BASE64 = "base64"
    """Any data, as Base64 text."""
    JSON = "json"
    """As what the JSON in it says; data that is not JSON fails its record."""


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"expected data that is UTF-8 (the spout's --data is text), got byte 0x{data[error.start]:02x} at "
            f"{error.start}: use --data base64"
        ) from error


def _base64(data: bytes) -> str:
    return pybase64.b64encode(data).decode("ascii")


_FORMS: Final[dict[DataForm, Callable[[bytes], Any]]] = {
    DataForm.TEXT: _text,
    DataForm.BASE64: _base64,
    DataForm.JSON: decoded_json,
}

_ALLOWED: Final = (
    "data", "partition_key", "sequence_number", "sub_sequence_number", "explicit_hash_key", "shard_id",
    "arrival_timestamp", "attempt", "stream",
)  # fmt: skip

FIELDS: Final = ("partition_key", "data", "sequence_number", "shard_id", "arrival_timestamp")
"""The fields of a tuple unless others are chosen. The partition key and the arrival (seconds since the epoch) can
be null; the sequence number, of up to 129 digits, is text; the data is what ``DataForm`` says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordValues:
    """A scheme: makes the list of a record's values. InvalidConfig: no such field, or one comes twice."""

    fields: tuple[str, ...] = FIELDS
    data: DataForm = DataForm.TEXT

    def __post_init__(self) -> None:
        wrong = [name for name in self.fields if name not in _ALLOWED]
        if wrong or not self.fields or len(set(self.fields)) < len(self.fields):
            got = repr(wrong[0]) if wrong else repr(",".join(self.fields))
            raise InvalidConfig(f"--fields: expected some of {', '.join(_ALLOWED)}, each once, got {got}")

    def __call__(self, record: Record) -> list[Any]:
        """ValueError: the data does not have the form. That fails the record."""
        read = _FORMS[self.data]
        return [read(record.data) if name == "data" else getattr(record, name) for name in self.fields]


class _Start:
    """The first ``activate`` of a spout, which takes up to a minute if Kinesis or ZooKeeper does not answer.

    A host gives up a component that says nothing for ``topology.subprocess.timeout.secs``, 30 s. So it has a
    thread, which ends with the process; no other thread may activate or close the spout until it is over.
    """

    def __init__(self, spout: RecordSpout) -> None:
        self._spout = spout
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="start of the spout", daemon=True)
        self._thread.start()

    def is_over(self, wait_seconds: float = 0.0) -> bool:
        self._thread.join(wait_seconds)
        return not self._thread.is_alive()

    def raise_failure(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        try:
            self._spout.activate()
        except BaseException as error:  # noqa: BLE001 - raised again on the component's own thread
            self._error = error


class KinesisSpoutComponent(Spout):
    """Reads a Kinesis stream for a topology. Mutable; one thread's.

    It begins to read at the first ``activate``, or at a ``next`` of a host that says neither. The host is
    answered also while Kinesis or ZooKeeper is not there. ``configure`` makes the settings from the
    topology's configuration; ``log_level``, a level of ``logging``, is the least that goes to the host's log.
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
        self._spout: RecordSpout | None = None
        self._start: _Start | None = None
        self._is_active: bool | None = None
        """None: the host has not said."""

    def initialize(self, conf: dict[str, Any], context: dict[str, Any]) -> None:
        del context
        self.host_log.setFormatter(logging.Formatter("%(message)s"))
        logger = logging.getLogger(_LOGGER)
        logger.addHandler(self.host_log)
        logger.setLevel(self._log_level)
        try:
            self._spout = RecordSpout(config=self._configure(conf), scheme=self._values)
        except InvalidConfig as error:
            raise CannotContinue(str(error)) from error

    def close(self) -> None:
        """Store what is finished, and give the shards up.

        KinesisSpoutError: that could not be done. Nothing is lost: the records concerned come again.
        """
        try:
            # A start that still waits for an answer ends with the process: nothing was read.
            if self._spout is not None and (self._start is None or self._start.is_over(_END_SECONDS)):
                self._spout.close()
        finally:
            logging.getLogger(_LOGGER).removeHandler(self.host_log)

    def activate(self) -> None:
        self._is_active = True
        if self._start is not None:
            if self._has_started():
                self._opened.activate()
            return
        self._start = _Start(self._opened)
        if not self._has_started(_START_SECONDS):
            self.log("Kinesis or ZooKeeper has not answered yet: no record can be read before", WARN)

    def deactivate(self) -> None:
        """Emit nothing until ``activate``. Acks, fails, time-outs and commits continue."""
        self._is_active = False
        if self._has_started():
            self._opened.deactivate()

    def next_tuple(self) -> None:
        if self._is_active is None:
            self.activate()  # old hosts say so only by asking
        if not self._is_active or not self._has_started():
            self._rest()
            return
        try:
            emitted = self._opened.next_tuple()
        except KinesisSpoutError as error:
            if not error.retriable:
                raise CannotContinue(str(error)) from error
            self.log(f"tried again: {error}", WARN)
            self._rest()
            return
        if emitted is None:
            self._rest()
        else:
            self._rest_seconds = _REST_SECONDS
            self._emit_record(emitted)

    def ack(self, message_id: Any) -> None:
        self._settle(lambda spout: spout.ack(message_id), message_id)

    def fail(self, message_id: Any) -> None:
        self._settle(lambda spout: spout.fail(message_id, "failed in the topology, or timed out"), message_id)

    def _has_started(self, wait_seconds: float = 0.0) -> bool:
        """True if the spout is open; waits this long for its start. One that failed ends the process."""
        if self._start is None or not self._start.is_over(wait_seconds):
            return False
        try:
            self._start.raise_failure()
        except KinesisSpoutError as error:
            raise CannotContinue(str(error)) from error  # a spout whose start failed is closed
        return True

    def _rest(self) -> None:
        self._sleep(self._rest_seconds)
        self._rest_seconds = min(2 * self._rest_seconds, _MOST_REST_SECONDS)

    def _emit_record(self, emitted: Emitted) -> None:
        try:
            self.emit(emitted.values, id=emitted.message_id)
        except UnsendableValue as error:
            self._opened.fail(emitted.message_id, error)

    def _settle(self, settle: Callable[[RecordSpout], bool], message_id: Any) -> None:
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
    def _opened(self) -> RecordSpout:
        assert self._spout is not None, "the host's commands come after the hand-shake"
        return self._spout
