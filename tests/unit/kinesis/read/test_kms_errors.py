"""A stream whose key KMS refuses: the shard waits where it is, tries slowly, and skips nothing."""

from typing import TYPE_CHECKING, Any, cast

import pytest

from kinesis_spout.kinesis import PollingShardGetter
from kinesis_spout.model.errors import KeyUnavailable, KinesisError, Throttled
from kinesis_spout.testing import InMemoryShardLister, InMemoryStream, ManualClock
from shard_state import Position
from tests.support.kinesis.in_memory_client import InMemoryKinesisClient, client_error

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

SHARD = "shardId-000000000000"
KEY_CODES = (
    "KMSDisabledException",
    "KMSInvalidStateException",
    "KMSAccessDeniedException",
    "KMSNotFoundException",
    "KMSOptInRequired",
)
ALL_CODES = [
    *((code, KeyUnavailable, 30.0) for code in KEY_CODES),
    ("KMSThrottlingException", Throttled, 1.0),
]


class Refusing(InMemoryKinesisClient):
    """Answers some calls with an error."""

    def __init__(self, stream: InMemoryStream) -> None:
        super().__init__(stream)
        self.refusals: list[tuple[str, str]] = []
        """The operation and the code of each, in order."""

    def get_shard_iterator(self, **request: Any) -> dict[str, Any]:
        self._refuse("GetShardIterator")
        return super().get_shard_iterator(**request)

    def get_records(self, **request: Any) -> dict[str, Any]:
        self._refuse("GetRecords")
        return super().get_records(**request)

    def _refuse(self, operation: str) -> None:
        if self.refusals and self.refusals[0][0] == operation:
            raise client_error(self.refusals.pop(0)[1], operation)


@pytest.mark.parametrize("operation", ["GetRecords", "GetShardIterator"])
@pytest.mark.parametrize(("code", "kind", "seconds"), ALL_CODES)
def test_a_refused_key_delays_the_shard_and_skips_nothing(
    operation: str, code: str, kind: type[KinesisError], seconds: float
) -> None:
    clock = ManualClock()
    stream = InMemoryStream("orders", clock=clock)
    client = Refusing(stream)
    getter = PollingShardGetter(
        cast("KinesisClient", client),
        stream="orders",
        shard_id=SHARD,
        position=Position.trim_horizon(),
        lister=InMemoryShardLister(stream),
        clock=clock,
        jitter=lambda: 0.0,
    )
    for data in (b"one", b"two", b"three"):
        stream.put(data, "key")
    read = [record.data for record in getter.read(1).records]
    if operation == "GetShardIterator":
        clock.advance(271)  # the iterator is renewed
    client.refusals = [(operation, code)] * 3
    for failures in range(3):
        before = getter.position
        with pytest.raises(kind, match=f"{operation} of shard '{SHARD}'.*{code}"):
            getter.read(1)
        assert getter.position == before
        assert getter.ready_at - clock.monotonic() >= (seconds if failures else 1.0)
    assert getter.throttles == (3 if kind is Throttled else 0)

    read += [record.data for _ in range(2) for record in getter.read(1).records]

    assert read == [b"one", b"two", b"three"]
