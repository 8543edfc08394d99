from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from kinesis_spout.errors import AccessDenied, StreamNotFound, Throttled, Unavailable
from kinesis_spout.kinesis import KinesisShardLister
from kinesis_spout.testing import ManualClock
from tests.in_memory_kinesis_client import client_error

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
