"""The names of streams and shards, and the table that translates their errors.

An error that AWS names in its own words becomes the kind of the table. Everything else (the page of a proxy, a
body that is no reply, whatever botocore or a source of credentials raises) says nothing about the call: it
becomes Unavailable. ``kinesis.retry_policy`` decides what to do about each kind. The codes are those of the
Kinesis API's service model and the common errors of AWS's JSON services:
https://docs.aws.amazon.com/kinesis/latest/APIReference/CommonErrors.html
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from botocore import exceptions as botocore_errors
from botocore.exceptions import ClientError

from kinesis_spout.model.errors import (
    AccessDenied,
    DataLoss,
    ExpiredIterator,
    InvalidConfig,
    InvalidIterator,
    KeyUnavailable,
    KinesisError,
    KinesisSpoutError,
    Throttled,
    Unavailable,
)

T = TypeVar("T")

RAW_BODY: Final = "RawBody"
"""The key of a GetRecords reply that holds its undecoded body."""


class ResourceNotFound(Unavailable):
    """One call says that the stream or the shard does not exist; not verified yet.

    The getter that meets it asks the lister; only then it becomes StreamNotFound or ShardNotFound. Retriable,
    so that it does no harm where it is not verified.
    """


class ResourceInUse(Unavailable):
    """The stream is being changed, or the shard was subscribed to just now."""


class SignatureRefused(AccessDenied):
    """AWS refuses keys that it accepted before, or this machine's clock. It may be mended later."""

    retriable = True


class ExpiredNextToken(KinesisError):  # noqa: N818
    """The token for a listing's next page outlived its 300 s. The listing starts again."""

    retriable = True


class UnusableConfig(InvalidConfig):
    """boto3 cannot make a call with the configuration as it is now; a file of it may be mended."""


ERRORS_BY_CODE: Final[dict[str, type[KinesisError]]] = {
    "ExpiredIteratorException": ExpiredIterator,
    "ExpiredNextTokenException": ExpiredNextToken,
    "ProvisionedThroughputExceededException": Throttled,
    "LimitExceededException": Throttled,
    "KMSThrottlingException": Throttled,
    "ThrottlingException": Throttled,
    "Throttling": Throttled,
    "RequestLimitExceeded": Throttled,
    "ResourceInUseException": ResourceInUse,
    "ResourceNotFoundException": ResourceNotFound,
    "KMSDisabledException": KeyUnavailable,
    "KMSInvalidStateException": KeyUnavailable,
    "KMSAccessDeniedException": KeyUnavailable,
    "KMSNotFoundException": KeyUnavailable,
    "KMSOptInRequired": KeyUnavailable,
    "AccessDeniedException": AccessDenied,
    "AccessDenied": AccessDenied,
    "NotAuthorized": AccessDenied,
    "UnrecognizedClientException": AccessDenied,
    "InvalidClientTokenId": AccessDenied,
    "InvalidSignatureException": AccessDenied,
    "SignatureDoesNotMatch": AccessDenied,
    "IncompleteSignature": AccessDenied,
    "IncompleteSignatureException": AccessDenied,
    "MissingAuthenticationToken": AccessDenied,
    "MissingAuthenticationTokenException": AccessDenied,
    "ExpiredToken": AccessDenied,
    "ExpiredTokenException": AccessDenied,
    "RequestExpired": AccessDenied,
    "OptInRequired": AccessDenied,
    "ForbiddenException": AccessDenied,  # of SSO
    "InvalidIdentityToken": AccessDenied,  # of STS, as the next ones
    "IDPRejectedClaim": AccessDenied,
    "InternalFailureException": Unavailable,
    "UnknownOperationException": KinesisError,
    "ValidationException": KinesisError,
}
"""Others are Unavailable: they say nothing of the request, or are no words of AWS."""

INVALID_ARGUMENT_BY_OPERATION: Final[dict[str, type[KinesisError]]] = {
    "GetRecords": InvalidIterator,
    "GetShardIterator": DataLoss,
    "SubscribeToShard": DataLoss,
}
"""InvalidArgumentException does not say which argument is invalid; the operation tells."""

ERRORS_BY_CAUSE: Final[tuple[tuple[type[Exception], type[KinesisSpoutError]], ...]] = (
    (botocore_errors.NoCredentialsError, AccessDenied),
    (botocore_errors.PartialCredentialsError, AccessDenied),
    (botocore_errors.SSOError, AccessDenied),
    (botocore_errors.TokenRetrievalError, AccessDenied),
    (botocore_errors.ProfileNotFound, UnusableConfig),
    (botocore_errors.InvalidConfigError, UnusableConfig),
    (botocore_errors.ConfigParseError, UnusableConfig),
    (botocore_errors.NoRegionError, UnusableConfig),
    (botocore_errors.InvalidRegionError, UnusableConfig),
    (botocore_errors.ParamValidationError, UnusableConfig),
)
"""Calls that were not made. Others are Unavailable: they did not reach the service, or got no good reply."""
_BAD_REQUEST, _TOO_MANY_REQUESTS, _FAULT_OF_SERVICE, _NO_ERROR_OF_HTTP = 400, 429, 500, 600
_LONGEST_SAID: Final = 500
"""Characters of an error: a proxy's page is longer."""

_TRIES: Final = re.compile(r" \(reached max retries: \d+\)")

_REMEDIES: Final[dict[type[KinesisSpoutError], str]] = {
    AccessDenied: "check the credentials, the role and its permissions on the stream",
    KeyUnavailable: "check the state of the stream's KMS key and kms:Decrypt; the shard waits, nothing is skipped",
    UnusableConfig: "set the region, the profile and the stream to what AWS knows",
}
_REMEDIES_BY_CAUSE: Final[tuple[tuple[type[Exception], str], ...]] = (
    (
        botocore_errors.NoCredentialsError,
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or `aws_profile`; an emulator takes any keys",
    ),
    (
        botocore_errors.NoRegionError,
        "set `region`, or AWS_DEFAULT_REGION, or name the stream by its ARN",
    ),
    (
        botocore_errors.SSLError,
        "if an own authority signed the certificate, name its PEM file as `ca_bundle`",
    ),
    (
        botocore_errors.ProxyConnectionError,
        "check `proxy_url`, or HTTPS_PROXY and NO_PROXY of the environment",
    ),
    (botocore_errors.SSOError, "run `aws sso login` for the profile, also where the executors run"),
)


@contextmanager
def translated(call: str) -> Iterator[None]:
    """Translate errors inside; ``call`` is for the message: "GetRecords of shard s of stream t"."""
    try:
        yield
    except KinesisSpoutError:
        raise
    except Exception as error:
        raise translate(error, call) from error


def translate(error: Exception, call: str) -> KinesisSpoutError:
    """Look an error of a call up in the table: boto3's, and all that a strange reply makes others raise."""
    kind = _kind_of_reply(error) if isinstance(error, ClientError) else _kind_of_cause(error)
    by_cause = (remedy for cause, remedy in _REMEDIES_BY_CAUSE if isinstance(error, cause))
    remedy = next(by_cause, _REMEDIES.get(kind))
    said = said_by_boto3(error)
    translated = kind(
        f"{call} failed: {said}" if remedy is None else f"{call} failed: {said.rstrip('.')}; {remedy}"
    )
    translated.remedy = remedy or ""
    translated.__cause__ = error
    return translated


def error_code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def said_by_boto3(error: Exception) -> str:
    """Return the text of an error of boto3, in one line, without its number of tries: boto3's retries are off.

    The answer of a proxy that refused a tunnel is added, as boto3's text lacks it. Other errors have their
    type.
    """
    said = " ".join(_TRIES.sub("", str(error)[: 2 * _LONGEST_SAID]).split())[:_LONGEST_SAID]
    if not isinstance(error, ClientError | botocore_errors.BotoCoreError):
        said = f"{type(error).__name__}: {said}"
    within = error.kwargs.get("error") if isinstance(error, botocore_errors.ProxyConnectionError) else None
    answers = (str(each) for each in (within, *getattr(within, "args", ())) if isinstance(each, OSError))
    refused = next((answer for answer in answers if answer.startswith("Tunnel connection failed")), None)
    return said if refused is None else f"{said} ({refused})"


def expected(reply: Mapping[str, Any], member: str, call: str, kind: type[T]) -> T:
    """Return a member that every good reply has, of its kind.

    botocore makes an empty reply of a body that it cannot parse (a proxy's page, another format). Taken for
    an answer, that could mean "no records, no next iterator": the end of a shard.

    Raises:
        Unavailable: the member is missing, or is something else.
    """
    value = reply.get(member)
    if not isinstance(value, kind):
        raise Unavailable(
            f"{call} expected a reply with {member!r}, got {sorted(reply)}; the call is repeated. "
            "If this continues, check what is between here and Kinesis: a proxy, a VPC endpoint"
        )
    return value


def _kind_of_reply(error: ClientError) -> type[KinesisError]:
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", _BAD_REQUEST)
    if not _BAD_REQUEST <= status < _NO_ERROR_OF_HTTP:
        return Unavailable  # AWS says no error so
    code = error_code(error)
    if status >= _FAULT_OF_SERVICE:
        return Throttled if ERRORS_BY_CODE.get(code) is Throttled else Unavailable  # whatever else it says
    if code == "InvalidArgumentException":
        return INVALID_ARGUMENT_BY_OPERATION.get(error.operation_name, KinesisError)
    known = ERRORS_BY_CODE.get(code)
    if known is not None:
        return known
    return Throttled if status == _TOO_MANY_REQUESTS else Unavailable


def _kind_of_cause(error: Exception) -> type[KinesisSpoutError]:
    return next((kind for cause, kind in ERRORS_BY_CAUSE if isinstance(error, cause)), Unavailable)


def stream_arguments(stream: str) -> dict[str, Any]:
    """Name a stream to an API call: by its ARN (also in another account), or by its name in ours."""
    return account_arguments(stream) or {"StreamName": stream}


def account_arguments(stream: str) -> dict[str, Any]:
    """Name the account of a stream, if known, in a call that names the stream by an iterator."""
    return {"StreamARN": stream} if stream.startswith("arn:") else {}


def shard_text(stream: str, shard_id: str) -> str:
    return f"shard {shard_id!r} of stream {stream!r}"
