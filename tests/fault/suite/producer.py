"""Puts records at a steady pace, drawn from a seed, and keeps the ledger of what is on the stream."""

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from tests.fault.suite.consumers.delivery_log import RecordId
from tests.fault.suite.consumers.payload import Act, Payload
from tests.fault.suite.failure_rates import failures_in_a_row, in_turn

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

KEYS: Final = 96
MOST_FAILURES: Final = 3
"""Of a record that works in the end: its other attempts are for what comes of the faults."""
_RATE_SECONDS: Final = 5.0
"""For how long one rate of failures lasts."""
_BATCH_SECONDS: Final = 0.25
_ACTS: Final = (
    (Act.POISON, 0.03),
    (Act.REJECT, 0.01),
    (Act.HANG, 0.002),
    (Act.FORGET, 0.004),
    (Act.EXIT, 0.001),
    (Act.MEMORY, 0.002),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    record: RecordId
    key: str
    act: Act
    failures: int = 0


class Producer:
    """Mutable. A context manager; puts until it ends."""

    def __init__(
        self, client: "KinesisClient", stream: str, seed: str, per_second: float, rates: Sequence[float]
    ) -> None:
        self._client = client
        self._stream = stream
        self._random = random.Random(seed)
        self._batch = max(1, round(per_second * _BATCH_SECONDS))
        self._rates = rates
        self._per_rate = max(1, round(per_second * _RATE_SECONDS))
        self._number = 0
        self.ledger: list[Put] = []
        self.error: Exception | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="producer", daemon=True)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            while not self._stopping.wait(_BATCH_SECONDS):
                self._put([self._next() for _ in range(self._batch)])
        except Exception as error:  # noqa: BLE001 - shown by the director
            self.error = error

    def _next(self) -> Payload:
        self._number += 1
        drawn, act = self._random.random(), Act.NOTHING
        for candidate, share in _ACTS:
            if drawn < share:
                act = candidate
                break
            drawn -= share
        rate = in_turn(self._rates, self._number, self._per_rate)
        failures = failures_in_a_row(self._random, rate, MOST_FAILURES) if act is Act.NOTHING else 0
        key = f"key-{self._random.randrange(KEYS)}"
        return Payload(number=self._number, key=key, act=act, failures=failures)

    def _put(self, payloads: list[Payload]) -> None:
        entries: list[Any] = [{"Data": payload.encode(), "PartitionKey": payload.key} for payload in payloads]
        reply = self._client.put_records(StreamName=self._stream, Records=entries)
        for payload, answer in zip(payloads, reply["Records"], strict=True):
            if "SequenceNumber" not in answer:
                continue  # a shard was just being closed: this record is on no shard
            record = RecordId(answer["ShardId"], int(answer["SequenceNumber"]))
            self.ledger.append(
                Put(record=record, key=payload.key, act=payload.act, failures=payload.failures)
            )
