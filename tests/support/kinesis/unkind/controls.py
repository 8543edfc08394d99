"""What a test tells the endpoint over a small channel of its own, and the credentials that are good there."""

import json
import time
from calendar import timegm
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final

from tests.support.kinesis.unkind.account import Account, AwsError, Stream
from tests.support.kinesis.unkind.behaviours import Behaviour, Switch
from tests.support.kinesis.unkind.operations import Operations
from tests.support.kinesis.unkind.subscriptions import Subscriptions

if TYPE_CHECKING:
    from tests.support.kinesis.unkind.server import Request

_MOST_SKEW_SECONDS: Final = 300.0
_STAMP: Final = "%Y%m%dT%H%M%SZ"


class Credentials:
    """Which keys are good, and what the sources of credentials answer. Mutable."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self.good: dict[str, str] | None = None
        """Access keys with their tokens; None: all are."""
        self.given: dict[str, str] = {}
        """What the sources give: ``access_key``, ``secret_key``, ``token``, and for how many ``seconds``."""
        self.bad_until = 0.0
        """Monotonic: until then the sources answer with"""
        self.bad_status = 200
        self.bad_body = b""
        self.asked = 0

    def check(self, request: "Request") -> None:
        """Refuse a request that was signed with a clock that is off, or with keys that are not good."""
        stamp = request.headers.get("x-amz-date", "")
        if stamp:
            signed, now = float(timegm(time.strptime(stamp, _STAMP))), self._account.now()
            if abs(now - signed) > _MOST_SKEW_SECONDS:
                expired = "Signature expired" if signed < now else "Signature not yet current"
                here = time.strftime(_STAMP, time.gmtime(now))
                raise AwsError(
                    "InvalidSignatureException", f"{expired}: {stamp} is now off from {here} by 5 min."
                )
        if self.good is None:
            return
        key, token = request.credential[0], request.headers.get("x-amz-security-token", "")
        if key not in self.good:
            raise AwsError(
                "UnrecognizedClientException", "The security token included in the request is invalid."
            )
        if token != self.good[key]:
            raise AwsError("ExpiredTokenException", "The security token included in the request is expired")

    def answer(self, target: str) -> tuple[int, bytes]:
        """Answer as a container's agent, or as the metadata service of a machine."""
        if target == "/latest/api/token":
            return 200, b"metadata-token"
        if target.endswith("/iam/security-credentials/"):
            return 200, b"role"
        self.asked += 1
        if time.monotonic() < self.bad_until:
            return self.bad_status, self.bad_body
        expires = time.gmtime(time.time() + float(self.given.get("seconds", "3600")))
        document = {
            "Code": "Success",
            "AccessKeyId": self.given.get("access_key", "test"),
            "SecretAccessKey": self.given.get("secret_key", "test"),
            "Token": self.given.get("token", ""),
            "Expiration": time.strftime("%Y-%m-%dT%H:%M:%SZ", expires),
        }
        return 200, json.dumps(document).encode()


class Controls:
    """Each public method is a command; its arguments are JSON's."""

    def __init__(
        self,
        operations: Operations,
        subscriptions: Subscriptions,
        calls: Counter[str],
        seen: deque[dict[str, Any]],
    ) -> None:
        self._operations = operations
        self._account = operations.account
        self._table = operations.table
        self._subscriptions = subscriptions
        self._calls = calls
        self._seen = seen
        self.credentials = Credentials(self._account)

    def answer(self, body: bytes) -> tuple[int, Any]:
        command = json.loads(body)
        try:
            return 200, getattr(self, f"do_{command.pop('do')}")(**command)
        except Exception as error:  # noqa: BLE001 - the test is told
            return 400, f"{type(error).__name__}: {error}"

    def do_switch_on(self, *, behaviour: str, operations: list[str], **others: Any) -> None:
        self._table.switch_on(
            Switch(behaviour=Behaviour(behaviour), operations=frozenset(operations), **others)
        )

    def do_switch_off(self, *, behaviour: str | None) -> None:
        self._table.switch_off(None if behaviour is None else Behaviour(behaviour))

    def do_reset(self) -> None:
        """Be kind again; streams stay."""
        self._table.switch_off()
        self._table.happened.clear()
        self._table.expected = self._table.records_lost = 0
        self._calls.clear()
        self._seen.clear()
        self._operations.pages.clear()
        self._account.ahead_seconds = 0.0
        self._account.list_page = 1_000
        self._subscriptions.reset()
        self.credentials.__init__(self._account)  # type: ignore[misc]

    def do_counts(self) -> dict[str, Any]:
        return {
            "happened": dict(self._table.happened),
            "calls": dict(self._calls),
            "expected": self._table.expected,
            "records_lost": self._table.records_lost,
            "credentials_asked": self.credentials.asked,
        }

    def do_seen(self, *, operation: str | None) -> list[dict[str, Any]]:
        return [each for each in self._seen if operation in {None, each["operation"]}]

    def do_create_stream(self, *, region: str, name: str, shards: int, **options: Any) -> None:
        self._account.create(region, name, shards, **options)

    def do_put(
        self,
        *,
        region: str,
        stream: str,
        shard_id: str | None,
        key: str,
        data: list[str],
        arrived: float | None,
    ) -> list[str]:
        """Put what no limit is for; ``data`` is base64."""
        found = self._stream(region, stream)
        shard = self._account.shard_for(found, key, None) if shard_id is None else found.shards[shard_id]
        return [self._account.put(found, shard, each, key, arrived=arrived) for each in data]

    def do_records(self, *, region: str, stream: str) -> dict[str, list[dict[str, str]]]:
        found = self._stream(region, stream)
        names = ("SequenceNumber", "PartitionKey", "Data")
        return {
            shard.id: [{name: record[name] for name in names} for record in shard.records]
            for shard in found.shards.values()
        }

    def do_trim(self, *, region: str, stream: str, shard_id: str, before: str | None) -> int:
        shard = self._stream(region, stream).shards[shard_id]
        return self._account.trim(shard, None if before is None else int(before))

    def do_forget_shard(self, *, region: str, stream: str, shard_id: str) -> None:
        """Have retention remove a shard: no list has it, and it is not found."""
        self._stream(region, stream).shards[shard_id].is_gone = True

    def do_set_clock(self, *, ahead_seconds: float) -> None:
        self._account.ahead_seconds = ahead_seconds

    def do_set_list_page(self, *, shards: int) -> None:
        self._account.list_page = shards

    def do_set_subscriptions(self, **settings: float) -> None:
        self._subscriptions.set(**settings)

    def do_take_over(self, *, shard_id: str | None) -> int:
        return self._subscriptions.take_over(shard_id)

    def do_is_caught_up(self, *, stream: str, shard_id: str) -> bool:
        return self._subscriptions.is_caught_up(stream, shard_id)

    def do_accept(self, *, keys: dict[str, str] | None) -> None:
        self.credentials.good = keys

    def do_give(self, **given: str) -> None:
        self.credentials.given = given

    def do_be_bad(self, *, seconds: float, status: int, body: str) -> None:
        """Have the sources of credentials answer so for some time."""
        self.credentials.bad_until = time.monotonic() + seconds
        self.credentials.bad_status, self.credentials.bad_body = status, body.encode()

    def _stream(self, region: str, name: str) -> Stream:
        return self._account.stream(region, {"StreamName": name})
