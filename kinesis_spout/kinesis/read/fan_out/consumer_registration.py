"""The registered consumer of a stream, which a subscription belongs to.

A stream has at most 20 of them (50 in some accounts; AWS says which). Each costs money per hour and shard
while it is registered, read or not. So one is registered when it is needed, shared by all members of an
application, found again after a restart, and kept until a user deregisters it.
https://docs.aws.amazon.com/kinesis/latest/APIReference/API_RegisterStreamConsumer.html
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from kinesis_spout.kinesis.calls import ResourceInUse, ResourceNotFound, error_code, expected, translated
from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.errors import KinesisError, StreamNotFound, Throttled, Unavailable

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

FEWEST_ALLOWED: Final = 20
"""AWS: the consumers that every stream can have. A stream with fewer was refused for another reason."""

ACTIVE_WITHIN_SECONDS: Final = 60.0
_LOOK_EVERY_SECONDS: Final = 0.25

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredConsumer:
    name: str
    arn: str
    status: str
    """"CREATING", "ACTIVE" or "DELETING"."""
    created: float
    """Seconds since the epoch."""


class ConsumerRegistration:
    """Registers one consumer of one stream, when first needed. Thread-safe. Calls ``stream_arn`` once."""

    def __init__(
        self,
        client: "KinesisClient",
        stream_arn: Callable[[], str],
        name: str,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._find_stream_arn = stream_arn
        self._name = name
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._stream_arn: str | None = None
        self._arn: str | None = None

    def arn(self) -> str:
        """Return the consumer's ARN; finds or registers it, and waits until it is active."""
        with self._lock:
            if self._arn is None:
                if self._stream_arn is None:
                    self._stream_arn = self._find_stream_arn()
                self._arn = self._active_arn()
            return self._arn

    def forget(self) -> None:
        with self._lock:
            self._arn = None

    def _active_arn(self) -> str:
        deadline = self._clock.monotonic() + ACTIVE_WITHIN_SECONDS
        consumer = self._described() or self._register()
        while consumer["ConsumerStatus"] == "CREATING" and self._clock.monotonic() < deadline:
            self._clock.sleep(_LOOK_EVERY_SECONDS)
            consumer = self._described() or consumer
        arn, status = str(consumer["ConsumerARN"]), consumer["ConsumerStatus"]
        if status != "ACTIVE":
            raise Unavailable(f"expected consumer {arn!r} to be ACTIVE, got {status}; it is asked for again")
        return arn

    def _described(self) -> dict[str, Any] | None:
        assert self._stream_arn is not None
        call = f"DescribeStreamConsumer of {self._name!r}"
        try:
            with translated(call):
                reply: Any = self._client.describe_stream_consumer(
                    StreamARN=self._stream_arn, ConsumerName=self._name
                )
        except ResourceNotFound:
            return None
        described: dict[str, Any] = expected(reply, "ConsumerDescription", call, dict)
        return described

    def _register(self) -> dict[str, Any]:
        assert self._stream_arn is not None
        call = f"RegisterStreamConsumer of {self._name!r} at {self._stream_arn!r}"
        try:
            with translated(call):
                reply: Any = self._client.register_stream_consumer(
                    StreamARN=self._stream_arn, ConsumerName=self._name
                )
        except ResourceInUse as error:
            raise Unavailable(f"{error}; another member registers it, or it is being deregistered") from error
        except ResourceNotFound as error:
            raise StreamNotFound(str(error)) from error
        except Throttled as error:
            raise self._refused(error) from error
        consumer: dict[str, Any] = expected(reply, "Consumer", call, dict)
        _log.warning(
            "registered consumer %s; it is paid for until `kinesis-spout fan-out deregister` ends it",
            consumer["ConsumerARN"],
        )
        return consumer

    def _refused(self, error: Throttled) -> KinesisError:
        """Distinguish too many consumers from too many calls: AWS has one code for both."""
        assert self._stream_arn is not None
        is_limit = isinstance(error.__cause__, ClientError) and error_code(error.__cause__) == (
            "LimitExceededException"
        )
        if not is_limit:
            return error
        names = [consumer.name for consumer in list_consumers(self._client, self._stream_arn)]
        if len(names) < FEWEST_ALLOWED:
            return error
        return KinesisError(
            f"expected room for consumer {self._name!r} at stream {self._stream_arn!r}, got {len(names)} "
            f"consumers, which is all that it may have: {', '.join(sorted(names))}. Deregister one that is not "
            "needed (`kinesis-spout fan-out deregister`), or read with the consumer mode polling"
        )


def list_consumers(client: "KinesisClient", stream_arn: str) -> list[RegisteredConsumer]:
    consumers: list[RegisteredConsumer] = []
    token: dict[str, Any] = {}
    while True:
        with translated(f"ListStreamConsumers of {stream_arn!r}"):
            reply: Any = client.list_stream_consumers(StreamARN=stream_arn, **token)
            consumers.extend(
                RegisteredConsumer(
                    name=listed["ConsumerName"],
                    arn=listed["ConsumerARN"],
                    status=listed["ConsumerStatus"],
                    created=listed["ConsumerCreationTimestamp"].timestamp(),
                )
                for listed in expected(reply, "Consumers", "ListStreamConsumers", list)
            )
        if not reply.get("NextToken"):
            return consumers
        token = {"NextToken": reply["NextToken"]}


def deregister_consumer(client: "KinesisClient", stream_arn: str, name: str) -> None:
    """End a consumer and its subscriptions; it costs nothing any more."""
    with translated(f"DeregisterStreamConsumer of {name!r} at {stream_arn!r}"):
        client.deregister_stream_consumer(StreamARN=stream_arn, ConsumerName=name)
