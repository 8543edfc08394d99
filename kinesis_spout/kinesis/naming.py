"""Names of streams for API calls, and of shards for messages."""

from typing import Any


def stream_arguments(stream: str) -> dict[str, Any]:
    """Name a stream to an API call: by its ARN (also in another account), or by its name in ours."""
    return account_arguments(stream) or {"StreamName": stream}


def account_arguments(stream: str) -> dict[str, Any]:
    """Name the account of a stream, if known, in a call that names the stream by an iterator."""
    return {"StreamARN": stream} if stream.startswith("arn:") else {}


def shard_text(stream: str, shard_id: str) -> str:
    return f"shard {shard_id!r} of stream {stream!r}"
