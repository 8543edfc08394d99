from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from kinesis_spout.kinesis import KinesisShardLister
from kinesis_spout.kinesis.calls import ExpiredNextToken
from kinesis_spout.model.errors import AccessDenied, StreamNotFound, Throttled, Unavailable
from kinesis_spout.testing import ManualClock
from tests.support.kinesis.in_memory_client import client_error

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

Answer = dict[str, Any] | Exception


class ScriptedClient:
    """Answers ListShards from a list, one answer a call; the last one for ever."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.requests: list[dict[str, Any]] = []
        self.meta = SimpleNamespace(region_name="eu-west-1", endpoint_url="https://kinesis.example")

    def list_shards(self, **request: Any) -> dict[str, Any]:
        self.requests.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    describe_stream_summary: Callable[..., dict[str, Any]] = list_shards


def _page(*numbers: int, token: str | None = None) -> dict[str, Any]:
    shards = [
        {
            "ShardId": f"shard-{number}",
            "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"},
            "SequenceNumberRange": {"StartingSequenceNumber": "1"},
        }
        for number in numbers
    ]
    return {"Shards": shards, "NextToken": token} if token else {"Shards": shards}


def _lister(client: ScriptedClient, clock: ManualClock | None = None) -> KinesisShardLister:
    return KinesisShardLister(cast("KinesisClient", client), "orders", clock=clock or ManualClock())


def _ids(lister: KinesisShardLister) -> list[str]:
    return [shard.shard_id for shard in lister.list_shards()]


def test_all_pages_are_listed_and_a_token_goes_without_the_streams_name() -> None:
    client = ScriptedClient(_page(0, 1, token="t1"), _page(2, token="t2"), _page(3))

    assert _ids(_lister(client)) == ["shard-0", "shard-1", "shard-2", "shard-3"]
    assert client.requests == [{"StreamName": "orders"}, {"NextToken": "t1"}, {"NextToken": "t2"}]


def test_an_expired_token_restarts_the_listing() -> None:
    expired = client_error("ExpiredNextTokenException", "ListShards")
    client = ScriptedClient(_page(0, token="t1"), expired, _page(0, token="t3"), _page(1))

    assert _ids(_lister(client)) == ["shard-0", "shard-1"]


def test_a_throttle_is_retried_after_a_growing_wait() -> None:
    throttle = client_error("LimitExceededException", "ListShards")
    clock = ManualClock()

    assert _ids(_lister(ScriptedClient(throttle, throttle, throttle, _page(0)), clock)) == ["shard-0"]
    assert 0.7 <= clock.monotonic() <= 1.4


@pytest.mark.parametrize(
    ("code", "kind"), [("LimitExceededException", Throttled), ("InternalFailure", Unavailable)]
)
def test_what_does_not_pass_is_raised_at_the_deadline(code: str, kind: type[Exception]) -> None:
    clock = ManualClock()

    with pytest.raises(kind, match="in 60 s") as caught:
        _ids(_lister(ScriptedClient(client_error(code, "ListShards")), clock))

    assert getattr(caught.value, "retriable", False)
    assert 50 <= clock.monotonic() <= 60


def test_a_missing_stream_is_named_with_region_and_endpoint() -> None:
    client = ScriptedClient(client_error("ResourceNotFoundException", "ListShards"))

    for ask in (_lister(client).list_shards, _lister(client).summary):
        with pytest.raises(
            StreamNotFound, match=r"'orders' in region 'eu-west-1' at https://kinesis.example"
        ):
            ask()


def test_bad_credentials_fail_at_once() -> None:
    client = ScriptedClient(client_error("UnrecognizedClientException", "ListShards"))

    with pytest.raises(AccessDenied, match="check the credentials"):
        _lister(client).list_shards()

    assert len(client.requests) == 1


def test_a_reply_that_is_none_is_retried_not_taken_for_no_shards() -> None:
    assert _ids(_lister(ScriptedClient({"message": "<html>"}, _page(0)))) == ["shard-0"]


class ServiceOfManyPages:
    """Answers ListShards page by page; its tokens expire, and it throttles, when it is told to."""

    def __init__(self, pages: int, *, throttle_every: int = 0, expire_once_at: int | None = None) -> None:
        self._pages = pages
        self._throttle_every = throttle_every
        self._expire_once_at = expire_once_at
        self.calls = 0
        self.served: list[int] = []
        self.meta = SimpleNamespace(region_name="eu-west-1", endpoint_url="https://kinesis.example")

    def list_shards(self, **request: Any) -> dict[str, Any]:
        self.calls += 1
        if self._throttle_every and self.calls % self._throttle_every == 0:
            raise client_error("LimitExceededException", "ListShards")
        at = int(request.get("NextToken", "0"))
        if at == self._expire_once_at:
            self._expire_once_at = None
            raise client_error("ExpiredNextTokenException", "ListShards")
        self.served.append(at)
        return _page(at, token=str(at + 1) if at + 1 < self._pages else None)


def _lister_of(service: ServiceOfManyPages) -> KinesisShardLister:
    return KinesisShardLister(cast("KinesisClient", service), "orders", clock=ManualClock())


def test_a_thousand_pages_are_a_thousand_calls_of_list_shards_and_none_of_another_kind() -> None:
    service = ServiceOfManyPages(1_000)

    assert _ids(_lister_of(service)) == [f"shard-{number}" for number in range(1_000)]
    assert service.calls == 1_000


def test_a_throttle_costs_the_page_it_met_and_not_those_before_it() -> None:
    """Begun anew with each throttle, a listing that meets one every hundred pages would never end."""
    service = ServiceOfManyPages(1_000, throttle_every=100)

    assert _ids(_lister_of(service)) == [f"shard-{number}" for number in range(1_000)]
    assert service.served == list(range(1_000))
    assert service.calls <= 1_011


def test_a_token_that_expires_in_the_middle_restarts_a_long_listing_and_no_shard_is_twice_in_it() -> None:
    service = ServiceOfManyPages(1_000, throttle_every=100, expire_once_at=500)

    assert _ids(_lister_of(service)) == [f"shard-{number}" for number in range(1_000)]
    assert service.served == [*range(500), *range(1_000)]


def test_a_token_that_expires_again_and_again_is_an_error_at_the_deadline() -> None:
    expired = client_error("ExpiredNextTokenException", "ListShards")
    clock = ManualClock()

    with pytest.raises(ExpiredNextToken, match="in 60 s"):
        _ids(_lister(ScriptedClient(_page(0, token="t1"), expired), clock))

    assert clock.monotonic() <= 60


def test_a_listing_may_take_longer_than_the_deadline_of_a_page() -> None:
    service = ServiceOfManyPages(1_000, throttle_every=2)
    clock = ManualClock()
    lister = KinesisShardLister(cast("KinesisClient", service), "orders", clock=clock)

    assert len(lister.list_shards()) == 1_000
    assert clock.monotonic() > 60


@pytest.mark.parametrize(
    ("said", "ignores_keys"),
    [
        ({"RecordDistributionStrategy": "AUTO"}, True),
        ({"RecordDistributionStrategy": "USER_PARTITION_KEY"}, False),
        ({}, False),
    ],
)
def test_a_summary_says_whether_aws_ignores_keys(said: dict[str, str], *, ignores_keys: bool) -> None:
    summary = {
        "StreamName": "orders",
        "StreamARN": "arn",
        "StreamCreationTimestamp": datetime.now(UTC),
        **said,
    }

    assert (
        _lister(ScriptedClient({"StreamDescriptionSummary": summary})).summary().ignores_keys is ignores_keys
    )
