"""The GetRecords call, and the forms of its reply."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kinesis_spout.kinesis.errors import translated
from kinesis_spout.kinesis.naming import account_arguments, shard_text
from kinesis_spout.kinesis.read.arrow import ArrowForm, ArrowReply
from kinesis_spout.kinesis.read.calls.lean_calls import RAW_BODY
from kinesis_spout.kinesis.read.page import GetRecordsReply, decode_reply, reply_from_botocore

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

Reply = TypeVar("Reply", GetRecordsReply, ArrowReply)
_Made_co = TypeVar("_Made_co", GetRecordsReply, ArrowReply, covariant=True)

FetchArrow = Callable[[str, int, ArrowForm], ArrowReply]
"""Makes a call with an iterator and a limit, possibly in another process. Raises like
``call_get_records``."""


class ReplyForm(Protocol[_Made_co]):
    def decode(self, body: bytes) -> _Made_co:
        """Decode the body of a good JSON reply. Raises Unavailable for anything else."""
        ...

    def convert(self, reply: GetRecordsReply) -> _Made_co: ...


class RecordsForm:
    def decode(self, body: bytes) -> GetRecordsReply:
        return decode_reply(body)

    def convert(self, reply: GetRecordsReply) -> GetRecordsReply:
        return reply


def call_get_records(
    client: "KinesisClient",
    iterator: str,
    limit: int,
    form: ReplyForm[Reply],
    *,
    stream: str,
    shard_id: str,
) -> Reply:
    with translated(f"GetRecords of {shard_text(stream, shard_id)}"):
        response: Any = client.get_records(ShardIterator=iterator, Limit=limit, **account_arguments(stream))
    body = response.get(RAW_BODY)
    return form.convert(reply_from_botocore(response)) if body is None else form.decode(body)
