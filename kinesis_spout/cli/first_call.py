"""A command's first call of Kinesis fails at once where nobody listens at the endpoint.

A consumer waits for an endpoint that is away. A person at a terminal has more likely misspelt it, or the region.
Once anything has answered, commands wait as consumers do.
"""

from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import EndpointConnectionError, ProxyConnectionError, SSLError

from kinesis_spout.cli.failures import NobodyAnswers
from kinesis_spout.kinesis.errors import translate

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

_FAILED: Final = "after-call-error.kinesis"
_ANSWERED: Final = "after-call.kinesis"


def fail_at_once(client: "KinesisClient") -> "KinesisClient":
    """Have the first call of a client raise ``NobodyAnswers`` if it reaches nobody. Give the client."""
    events = client.meta.events

    def failed(*, exception: Exception, **_event: Any) -> None:
        url = client.meta.endpoint_url
        if isinstance(exception, EndpointConnectionError):
            said = f"expected Kinesis at {url}, got no connection: {_reason(exception)}"
            raise NobodyAnswers(said) from exception
        if isinstance(exception, ProxyConnectionError | SSLError):
            raise NobodyAnswers(str(translate(exception, f"Connecting to {url}"))) from exception

    def answered(**_event: Any) -> None:
        events.unregister(_FAILED, failed)
        events.unregister(_ANSWERED, answered)

    events.register(_FAILED, failed)
    events.register(_ANSWERED, answered)
    return client


def _reason(error: BaseException) -> str:
    """Say why in the words of the system; botocore has them among the causes."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return str(error)
