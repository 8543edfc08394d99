import pytest
from botocore import exceptions as botocore_errors
from botocore.exceptions import BotoCoreError

from kinesis_spout.kinesis.calls import (
    ExpiredNextToken,
    ResourceInUse,
    ResourceNotFound,
    UnusableConfig,
    expected,
    translate,
    translated,
)
from kinesis_spout.model.errors import (
    AccessDenied,
    DataLoss,
    ExpiredIterator,
    InvalidIterator,
    KeyUnavailable,
    KinesisError,
    KinesisSpoutError,
    StreamNotFound,
    Throttled,
    Unavailable,
)
from tests.support.kinesis.in_memory_client import client_error


@pytest.mark.parametrize(
    ("code", "kind", "retriable"),
    [
        ("ExpiredIteratorException", ExpiredIterator, True),
        ("ProvisionedThroughputExceededException", Throttled, True),
        ("LimitExceededException", Throttled, True),
        ("KMSThrottlingException", Throttled, True),
        ("ResourceInUseException", ResourceInUse, True),
        ("KMSDisabledException", KeyUnavailable, True),
        ("KMSInvalidStateException", KeyUnavailable, True),
        ("KMSAccessDeniedException", KeyUnavailable, True),
        ("KMSNotFoundException", KeyUnavailable, True),
        ("KMSOptInRequired", KeyUnavailable, True),
        ("ExpiredNextTokenException", ExpiredNextToken, True),
        ("AccessDeniedException", AccessDenied, False),
        ("UnrecognizedClientException", AccessDenied, False),
        ("ExpiredTokenException", AccessDenied, False),
        ("InternalFailureException", Unavailable, True),
        ("ServiceUnavailable", Unavailable, True),
        ("ValidationException", KinesisError, False),
    ],
)
def test_every_code_has_its_error(code: str, kind: type[KinesisError], *, retriable: bool) -> None:
    error = translate(client_error(code, "GetRecords"), "GetRecords of s")

    assert (type(error), error.retriable) == (kind, retriable)
    assert str(error).startswith("GetRecords of s failed: ")


def test_an_invalid_argument_means_what_the_operation_makes_of_it() -> None:
    kinds = {
        operation: type(translate(client_error("InvalidArgumentException", operation), operation))
        for operation in ("GetRecords", "GetShardIterator", "ListShards")
    }

    assert kinds == {"GetRecords": InvalidIterator, "GetShardIterator": DataLoss, "ListShards": KinesisError}


def test_not_found_is_not_believed_before_it_is_verified() -> None:
    error = translate(client_error("ResourceNotFoundException", "GetRecords"), "GetRecords")

    assert isinstance(error, ResourceNotFound)
    assert error.retriable
    assert not isinstance(error, StreamNotFound)


@pytest.mark.parametrize("code", ["ValidationException", "InvalidArgumentException", "AccessDeniedException"])
def test_an_answer_that_blames_the_service_is_never_final(code: str) -> None:
    assert type(translate(client_error(code, "PutRecords", status=503), "call")) is Unavailable


@pytest.mark.parametrize("status", [302, 400, 403, 404, 407, 413, 500, 503, 999])
@pytest.mark.parametrize("code", ["Whatever", "403", ""])
def test_what_aws_does_not_name_says_nothing_of_the_call(status: int, code: str) -> None:
    assert type(translate(client_error(code, "GetRecords", status=status), "call")) is Unavailable


def test_too_many_requests_are_a_throttle_whoever_says_so() -> None:
    assert type(translate(client_error("429", "GetRecords", status=429), "call")) is Throttled


def test_a_page_of_a_proxy_is_told_in_one_short_line() -> None:
    error = client_error("403", "GetRecords", message="<html>\n" + "<p>no</p>\n" * 10_000)

    said = str(translate(error, "call"))

    assert "<html> <p>no</p>" in said
    assert "\n" not in said
    assert len(said) < 600


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (botocore_errors.EndpointConnectionError(endpoint_url="http://x"), Unavailable),
        (botocore_errors.ConnectTimeoutError(endpoint_url="http://x"), Unavailable),
        (botocore_errors.ReadTimeoutError(endpoint_url="http://x"), Unavailable),
        (botocore_errors.ConnectionClosedError(endpoint_url="http://x"), Unavailable),
        (botocore_errors.NoCredentialsError(), AccessDenied),
        (botocore_errors.CredentialRetrievalError(provider="p", error_msg="e"), Unavailable),
        (botocore_errors.NoRegionError(), UnusableConfig),
        (botocore_errors.ParamValidationError(report="StreamName"), UnusableConfig),
        (BotoCoreError(), Unavailable),
        *(
            (error("x"), Unavailable)
            for error in (AttributeError, KeyError, MemoryError, RecursionError, RuntimeError, ValueError)
        ),
    ],
)
def test_every_cause_has_its_error(cause: Exception, kind: type[KinesisSpoutError]) -> None:
    assert type(translate(cause, "call")) is kind


def test_the_cause_is_kept() -> None:
    cause = client_error("InternalFailureException", "GetRecords")

    with pytest.raises(Unavailable) as caught, translated("call"):
        raise cause

    assert caught.value.__cause__ is cause


def test_an_error_of_ours_passes_untouched() -> None:
    error = Throttled("ours")

    with pytest.raises(Throttled) as caught, translated("call"):
        raise error

    assert caught.value is error


def test_a_reply_without_its_main_member_is_no_answer() -> None:
    with pytest.raises(Unavailable, match="'Shards'"):
        expected({"message": "<html>"}, "Shards", "ListShards", list)


@pytest.mark.parametrize("member", [5, "", {}, None])
def test_a_member_of_another_kind_is_no_answer(member: object) -> None:
    with pytest.raises(Unavailable, match="'Shards'"):
        expected({"Shards": member}, "Shards", "ListShards", list)
