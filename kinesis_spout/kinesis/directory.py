"""Which streams an account has in a region, from ListStreams (5 calls/s per account, so it is not asked often)."""

import random
from typing import TYPE_CHECKING, Any, Final

from kinesis_spout.kinesis.errors import expected
from kinesis_spout.kinesis.retry_policy import Jitter, RetryPolicy, Tries
from kinesis_spout.model.clock import Clock, SystemClock

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

_NAMES_A_PAGE: Final = 1_000
"""AWS: 100 unless asked for more, 10,000 at most."""


class KinesisStreamDirectory:
    """Names the streams that the client's credentials can list. Thread-safe: it keeps nothing between calls.

    Args:
        client: from ``KinesisClientSettings.connect``.
        deadline_seconds: how long a call goes on trying while the service throttles or fails.
        clock: what the tries wait on.
        jitter: of those waits.
    """

    def __init__(
        self,
        client: "KinesisClient",
        *,
        deadline_seconds: float = 60.0,
        clock: Clock | None = None,
        jitter: Jitter = random.random,
    ) -> None:
        self._client = client
        self._deadline_seconds = deadline_seconds
        self._clock = clock or SystemClock()
        self._jitter = jitter

    def names(self) -> list[str]:
        """Name every stream, all pages.

        Raises:
            AccessDenied: the credentials lack kinesis:ListStreams.
            KinesisError: with ``retriable`` set, for what may pass.
        """
        retry_policy = RetryPolicy(
            deadline_seconds=self._deadline_seconds, clock=self._clock, jitter=self._jitter
        )
        return Tries(retry_policy, "ListStreams").call(self._list_once)

    def _list_once(self) -> list[str]:
        names: list[str] = []
        arguments: dict[str, Any] = {"Limit": _NAMES_A_PAGE}
        while True:
            reply = self._client.list_streams(**arguments)
            page = expected(reply, "StreamNames", "ListStreams")
            names.extend(page)
            if not reply.get("HasMoreStreams") or not page:
                return names
            # The name and not the token, which emulators do not all have: nothing is missed or repeated by it.
            arguments["ExclusiveStartStreamName"] = page[-1]
