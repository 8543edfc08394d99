"""An S3 and a Kinesis of this machine: moto's server, one for all tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import boto3
from moto.server import ThreadedMotoServer

from kinesis_spout.kinesis.client_settings import KinesisClientSettings

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

SECRET = "wJalrXUtnFEMI-of-the-tests"


def a_session() -> boto3.Session:
    """Make a session with credentials that no environment has."""
    return boto3.Session(
        aws_access_key_id="AKIDOFTHETESTS", aws_secret_access_key=SECRET, region_name="eu-west-1"
    )


@cache
def s3_endpoint() -> str:
    """Start the server, which lives as long as the test run."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    return f"http://{host}:{port}"


def keys_in(bucket: str) -> list[str]:
    """List what a bucket holds, without the code under test."""
    client = a_session().client("s3", endpoint_url=s3_endpoint())
    listed = client.list_objects_v2(Bucket=bucket)
    client.close()
    return [found["Key"] for found in listed.get("Contents", [])]


@contextmanager
def s3_with_bucket(bucket: str) -> Iterator[str]:
    """Make an empty bucket, and give the endpoint."""
    resource = a_session().resource("s3", endpoint_url=s3_endpoint())
    made = resource.create_bucket(
        Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"}
    )
    try:
        yield s3_endpoint()
    finally:
        made.objects.all().delete()
        made.delete()
        resource.meta.client.close()


@contextmanager
def kinesis_with_streams(*names: str) -> "Iterator[KinesisClient]":
    """Make streams of one shard, and give a client; all streams there are gone afterwards."""
    settings = KinesisClientSettings(
        region="eu-west-1",
        endpoint_url=s3_endpoint(),
        aws_access_key_id="AKIDOFTHETESTS",
        aws_secret_access_key=SECRET,
    )
    client = settings.create()
    for name in names:
        client.create_stream(StreamName=name, ShardCount=1)
    try:
        yield client
    finally:
        for name in client.list_streams()["StreamNames"]:
            client.delete_stream(StreamName=name)
        client.close()
