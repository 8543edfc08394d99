import pytest
from botocore import exceptions as botocore_errors
from botocore.exceptions import BotoCoreError

from kinesis_spout.kinesis.calls import (
    ExpiredNextToken,
    ResourceInUse,
    ResourceNotFound,
    expected,
    translate,
    translated,
)
from kinesis_spout.model.errors import (
    AccessDenied,
    DataLoss,
    ExpiredIterator,
    InvalidConfig,
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


@pytest.mark.parametrize(("status", "kind"), [(500, Unavailable), (503, Unavailable), (429, Throttled)])
def test_an_unknown_code_is_judged_by_its_status(status: int, kind: type[KinesisError]) -> None:
    assert type(translate(client_error("Whatever", "GetRecords", status=status), "call")) is kind


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (botocore_errors.EndpointConnectionError(endpoint_url="http://x"), Unavailable),
        (botocore_errors.ConnectTimeoutError(endpoint_url="http://x"), Unavailable),
        (botocore_errors.ReadTimeoutError(endpoint_url="http://x"), Unavailable),
        (botocore_errors.ConnectionClosedError(endpoint_url="http://x"), Unavailable),
        (botocore_errors.NoCredentialsError(), AccessDenied),
        (botocore_errors.CredentialRetrievalError(provider="p", error_msg="e"), AccessDenied),
        (botocore_errors.NoRegionError(), InvalidConfig),
        (botocore_errors.ParamValidationError(report="StreamName"), InvalidConfig),
        (BotoCoreError(), KinesisError),
    ],
)
def test_every_cause_has_its_error(cause: BotoCoreError, kind: type[KinesisSpoutError]) -> None:
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
        expected({"message": "<html>"}, "Shards", "ListShards")
