"""An account of AWS, or an emulator: who asks, what it costs, and a stream that is gone in the end."""

import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from kinesis_spout.kinesis import KinesisClientSettings
from kinesis_spout.kinesis.calls import error_code
from tests.aws.scene import PATIENCE_SECONDS

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

PREFIX: Final = "kinesis-spout-test-"
TAGS: Final = {"made-by": "kinesis-spout make test-aws", "remove": "whenever nobody runs it"}

SHARDS_IN_ALL: Final = 4
"""One, two after its split, one after their merge; each is billed for an hour that was begun."""
_USD_PER_SHARD_HOUR: Final = 0.015
_USD_PER_CONSUMER_SHARD_HOUR: Final = 0.015
_USD: Final = SHARDS_IN_ALL * (_USD_PER_SHARD_HOUR + _USD_PER_CONSUMER_SHARD_HOUR)
COST: Final = (
    f"It costs about {_USD:.2f} USD by the list price of us-east-1: up to {SHARDS_IN_ALL} shards, "
    f"{_USD_PER_SHARD_HOUR} USD an hour each, and a consumer for fan-out, {_USD_PER_CONSUMER_SHARD_HOUR} USD an "
    "hour and shard; what is put and pushed costs less than 0.01. Other regions cost up to twice as much. A "
    "stream that stays goes on costing 0.36 USD a day and shard."
)


class NoAccount(Exception):  # noqa: N818 - what the user is told
    """There is nobody to ask as, or nothing to ask."""


def check_credentials(settings: KinesisClientSettings) -> None:
    """Find out that there are credentials and a region, before anything is asked or made.

    Raises:
        NoAccount: says what is missing.
    """
    try:
        session = settings.session()
        credentials: Any = session.get_credentials()
        credentials.get_frozen_credentials()
    except NoCredentialsError as error:
        raise NoAccount(
            "expected credentials of AWS, found none: set AWS_PROFILE or AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or give --profile; an emulator needs --endpoint and --emulator"
        ) from error
    except BotoCoreError as error:
        raise NoAccount(f"expected credentials of AWS, got {error}") from error
    if session.region_name is None:
        raise NoAccount("expected a region, found none: set AWS_DEFAULT_REGION, or give --region")


@contextmanager
def own_stream(client: "KinesisClient", say: Callable[[str], None]) -> Iterator[str]:
    """Make a stream with one shard under a new name, and remove it, however the context is left.

    Raises:
        NoAccount: it cannot be made.
    """
    name = f"{PREFIX}{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:8]}"
    say(f"Making the stream {name}.")
    try:
        try:
            client.create_stream(StreamName=name, ShardCount=1, Tags=TAGS)
        except (ClientError, BotoCoreError) as error:
            raise NoAccount(f"expected to make the stream {name}, got {error}") from error
        yield name
    finally:
        say(f"Removing the stream {name}.")
        with _undisturbed():
            _remove(client, name, say)


def _remove(client: "KinesisClient", name: str, say: Callable[[str], None]) -> None:
    """Have a stream removed, also one that is being made or was not made."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            client.delete_stream(StreamName=name, EnforceConsumerDeletion=True)
        except (ClientError, BotoCoreError) as error:
            code = error_code(error) if isinstance(error, ClientError) else ""
            if code == "ResourceNotFoundException":
                return
            if time.monotonic() > deadline or code == "AccessDeniedException":
                say(
                    f"The stream {name} could not be removed: {error}. Remove it by hand, or it goes on costing."
                )
                return
            time.sleep(1)
        else:
            return


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Let no second ctrl-C get between the stream and its removal."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Ending:
    """A request to end. Mutable: a signal makes it, at any moment."""

    def __init__(self) -> None:
        self._number: int | None = None

    def requested(self, number: int, _frame: object) -> None:
        """Leave whatever is going on."""
        self._number = number
        self.follow()

    def follow(self) -> None:
        """End, if that was requested: what went on may have taken the first try for a failure of its own."""
        if self._number is not None:
            raise SystemExit(128 + self._number)


@contextmanager
def ended_by_signals() -> Iterator[Ending]:
    """Turn a request to end into an exception, so that the stream is removed first."""
    ending = Ending()
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {each: signal.signal(each, ending.requested) for each in signals}
    try:
        yield ending
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
