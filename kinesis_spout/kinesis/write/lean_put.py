"""PutRecords with little CPU: botocore takes ten times as long to check, encode and decode.

See ``lean_call``. Records were checked when they came; msgspec encodes the body and decodes the reply.
"""

from typing import TYPE_CHECKING, Any, Final

import msgspec

from kinesis_spout.kinesis.lean_call import LeanCall, is_good_json

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

_BY_NAME: Final = {"StreamName", "Records"}
_BY_ARN: Final = {"StreamARN", "Records"}


class LeanPutRecords:
    """Called instead of a client's ``put_records``. Thread-safe, like the client.

    Records have ``bytes`` for data. A good reply has no ``ResponseMetadata``.
    """

    def __init__(self, client: "KinesisClient") -> None:
        self._whole = client.put_records
        self._lean = LeanCall(client, "PutRecords")

    def __call__(self, **arguments: Any) -> Any:
        members = arguments.keys()
        if members not in (_BY_NAME, _BY_ARN) or not _are_of_bytes(arguments["Records"]):
            return self._whole(**arguments)
        # The ARN decides on the endpoint, which may be an account's.
        place = arguments.get("StreamARN") or ""
        reply = None
        if self._lean.is_learnt(place):
            reply = self._lean.made(place, _encode(arguments))
        if reply is not None and is_good_json(reply.status, reply.headers):
            return _decoded(reply.body)
        return self._lean.by_botocore(place, lambda: self._whole(**arguments), reply)


def _are_of_bytes(records: Any) -> bool:
    """Whether msgspec encodes these records as botocore does: it would not make base64 of text."""
    return isinstance(records, list) and {type(record["Data"]) for record in records} <= {bytes}


def _decoded(body: bytes) -> dict[str, Any]:
    """Decode a reply; invalid JSON is an empty one, as for botocore."""
    try:
        reply = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return reply if isinstance(reply, dict) else {}


_encode = msgspec.json.Encoder().encode
