"""Refusals of operations, and the error of a first call of Kinesis that reaches no endpoint.

A message names an argument of an operation as it names a setting: "shard: expected ...". Each door spells it.
"""

from typing import TYPE_CHECKING, Any, Final

from kinesis_spout.model.errors import InvalidConfig, KinesisError, KinesisSpoutError

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

_FAILED: Final = "after-call-error.kinesis"
_ANSWERED: Final = "after-call.kinesis"


class WrongArguments(InvalidConfig):
    """An argument of an operation, other than the settings, that cannot be carried out."""


class LettersHeld(WrongArguments):
    """Another redrive or dismissal of the same letters runs: each letter has one outcome."""

    def __init__(self, place: str, other: str) -> None:
        super().__init__(f"expected no other redrive or dismissal of {place}, got {other}, which runs")


class NotFound(KinesisSpoutError):  # noqa: N818 - the name says what happened
    """The named thing does not exist."""


class NotBegun(NotFound):
    exit_code = 4


class NotReadYet(KinesisSpoutError):  # noqa: N818
    """The first reading takes longer than the one who looks waits. It goes on: look again."""

    retriable = True


class NobodyAnswers(KinesisError):  # noqa: N818
    """No endpoint listens at the address of Kinesis in the settings. Not tried again."""


def fail_at_once(client: "KinesisClient") -> "KinesisClient":
    """Have the first call of a client raise ``NobodyAnswers`` if it reaches no endpoint. Gives the client.

    A consumer waits for an endpoint that is away. An operator has more likely misspelt it, or the region.
    After the first answer, operations wait as consumers do.
    """
    from botocore.exceptions import EndpointConnectionError, ProxyConnectionError, SSLError  # noqa: PLC0415

    from kinesis_spout.kinesis.calls import translate  # noqa: PLC0415 - --help does not wait for boto3

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

    put_records, has_put = client.put_records, False

    def put(**arguments: Any) -> Any:
        """Put records; our own wire, which carries them, reports no events."""
        nonlocal has_put
        try:
            reply = put_records(**arguments)
        except Exception as error:
            if not has_put:
                failed(exception=error)
            raise
        has_put = True
        return reply

    events.register(_FAILED, failed)
    events.register(_ANSWERED, answered)
    client.put_records = put  # type: ignore[method-assign]
    return client


def _reason(error: BaseException) -> str:
    """The system's words; botocore has them among the causes."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return str(error)
