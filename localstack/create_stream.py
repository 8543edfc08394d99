# ruff: noqa: INP001 - a script beside the shell scripts that call it, not a package
"""Make a stream at a local endpoint, unless it is there: create_stream.py ENDPOINT STREAM SHARDS."""

import sys

import boto3
from botocore.config import Config


def main(endpoint: str, stream: str, shards: int) -> None:
    """Return when the stream is active; an existing one is left as it is, whatever its shards."""
    kinesis = boto3.client(
        "kinesis",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",  # noqa: S106 - local endpoints take any
        # LocalStack starts its Kinesis within the first request.
        config=Config(read_timeout=90, retries={"mode": "standard", "max_attempts": 5}),
    )
    try:
        kinesis.create_stream(StreamName=stream, ShardCount=shards)
    except kinesis.exceptions.ResourceInUseException:
        made = False
    else:
        made = True
    kinesis.get_waiter("stream_exists").wait(StreamName=stream, WaiterConfig={"Delay": 1, "MaxAttempts": 30})
    summary = kinesis.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]
    verb = "Made" if made else "Found"
    sys.stdout.write(f"{verb} stream '{stream}' with {summary['OpenShardCount']} open shards.\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
