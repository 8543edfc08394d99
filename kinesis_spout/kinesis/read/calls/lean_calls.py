"""GetRecords with little CPU, because most calls return nothing; see ``lean_call``.

A thousand idle shards, polled once a second through botocore, use more than half a core.
"""

import json
from typing import TYPE_CHECKING, Any, Final

from kinesis_spout.kinesis.lean_call import LeanCall, is_good_json

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

RAW_BODY: Final = "RawBody"
"""The key of a GetRecords reply that holds its undecoded body."""

_MEMBERS: Final = {"ShardIterator", "Limit"}
_ANYWHERE: Final = ""
"""An iterator alone does not decide which endpoint a call goes to."""


class LeanGetRecords:
    """Called instead of a client's ``get_records``. Thread-safe, like the client."""

    def __init__(self, client: "KinesisClient") -> None:
        self._whole = client.get_records
        self._lean = LeanCall(client, "GetRecords")

    def __call__(self, **arguments: Any) -> Any:
        """See boto3. The body of a good JSON reply is not decoded, but returned under ``RAW_BODY``."""
        if arguments.keys() != _MEMBERS:
            return self._whole(**arguments)
        reply = None
        if self._lean.is_learnt(_ANYWHERE):
            reply = self._lean.made(_ANYWHERE, json.dumps(arguments).encode())
        if reply is not None and is_good_json(reply.status, reply.headers):
            return {RAW_BODY: reply.body}
        return self._lean.by_botocore(_ANYWHERE, lambda: self._whole(**arguments), reply)
