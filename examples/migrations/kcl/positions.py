"""Says where the workers of the KCL stand, as kinesis-spout's setting initial_position; and the way back.

$ python positions.py LEASE_TABLE STREAM > positions.json
$ python positions.py LEASE_TABLE STREAM --back checkpoints.json

The first reads the lease table of a KCL application (1.x to 3.x) that is stopped. The second sets the leases of
open shards to what `kinesis-spout checkpoints show --json` has printed, once all members are stopped.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import ClientError

RENEWED_WITHIN_SECONDS = 15.0
"""Longer than a worker of the KCL takes to renew its leases: a third of failoverTimeMillis, which is 10 s."""

Leases = Mapping[str, Mapping[str, str]]
"""The attributes of the lease of each shard."""
Parents = Mapping[str, Sequence[str]]
"""Of each shard that the stream lists: those that it came from, as far as they are listed."""


def read_leases(dynamodb: Any, table: str, stream: str) -> Leases:
    """Read the leases of a stream. Other rows (of KCL 3.5 and newer), and other streams, are left out."""
    leases = {}
    for page in dynamodb.get_paginator("scan").paginate(TableName=table, ConsistentRead=True):
        for row in page["Items"]:
            if not {"checkpoint", "leaseCounter"} <= row.keys():
                continue
            of_stream = row.get("streamName", {}).get("S")  # account:stream:created, with several streams
            if of_stream is None or of_stream.split(":")[1:2] == [stream]:
                shard = row["shardId"]["S"] if of_stream else row["leaseKey"]["S"]
                leases[shard] = {name: next(iter(value.values())) for name, value in row.items()}
    if not leases:
        sys.exit(
            f"expected leases of the stream {stream} in the table {table}, found none: is it the lease table "
            "of this application? Unless the KCL was told otherwise, it has the application's name"
        )
    return leases


def read_parents(kinesis: Any, stream: str) -> Parents:
    """List the shards of the stream."""
    pages = kinesis.get_paginator("list_shards").paginate(StreamName=stream)
    listed = {shard["ShardId"]: shard for page in pages for shard in page["Shards"]}
    return {
        name: sorted({shard.get("ParentShardId"), shard.get("AdjacentParentShardId")} & listed.keys())
        for name, shard in listed.items()
    }


def positions(leases: Leases, parents: Parents, not_begun: str | None = None) -> dict[str, str]:
    """Give the position of each shard that does not begin at its oldest record.

    Args:
        leases: of the stream.
        parents: of its shards.
        not_begun: where shards begin for which the KCL has stored LATEST or AT_TIMESTAMP, and no record.
    """
    known = leases.keys() & parents.keys()
    if not known:
        sys.exit(
            f"expected leases of the stream's shards ({', '.join(sorted(parents))}), found leases of others "
            f"({', '.join(sorted(leases))}): it is the table of another stream, or the stream was made anew"
        )
    done = set().union(*(ancestors(shard, parents) for shard in known))
    found, unknown = {}, []
    for shard in parents:
        if shard in known:
            position = position_of(leases[shard], not_begun)
            if position is None:
                unknown.append(
                    f"the lease of {shard} is at {leases[shard]['checkpoint']}, which is no record"
                )
            elif position != "trim_horizon":
                found[shard] = position
        elif shard in done:
            found[shard] = "latest"  # its children have leases: the KCL has removed this one
        elif not ancestors(shard, parents) & known:  # others come after a shard that is read first
            unknown.append(f"{shard} has no lease")
    if unknown:
        sys.exit(
            f"expected a checkpoint of each shard, but {'; '.join(unknown)}. Begin at a time instead (the guide "
            "says how), or say with --not-begun where a lease without a checkpoint begins"
        )
    return found


def position_of(lease: Mapping[str, str], not_begun: str | None) -> str | None:
    """Say where a shard begins; None if that is not known."""
    checkpoint = lease["checkpoint"]
    if checkpoint == "TRIM_HORIZON":
        return "trim_horizon"
    if checkpoint == "SHARD_END":
        return "latest"  # nothing of it is read again
    if checkpoint.isdecimal():
        return f"after_sequence_number {checkpoint}:{lease.get('checkpointSubSequenceNumber', 0)}"
    return not_begun


def ancestors(shard: str, parents: Parents) -> set[str]:
    """Name the shards that a shard came from."""
    return set(parents[shard]).union(*(ancestors(each, parents) for each in parents[shard]))


def read_checkpoints(path: Path) -> Mapping[str, Any]:
    """Read what `kinesis-spout checkpoints show --json` has printed."""
    try:
        document: Mapping[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        sys.exit(f"expected what `kinesis-spout checkpoints show --json` prints in {path}, got: {error}")
    return document


def set_back(dynamodb: Any, table: str, leases: Leases, document: Mapping[str, Any]) -> None:
    """Move the leases of open shards to the checkpoints of a `checkpoints show --json`, and say which."""
    for shard in document["shards"]:
        name = shard["shard_id"]
        after = re.fullmatch(r"(\d+)(?::(\d+))?", shard["checkpoint"] or "")
        if name not in leases or leases[name]["checkpoint"] == "SHARD_END" or after is None:
            print(f"{name}: left as it is; the KCL goes on where it stood", file=sys.stderr)
            continue
        dynamodb.update_item(
            TableName=table,
            Key={"leaseKey": {"S": leases[name]["leaseKey"]}},
            UpdateExpression="SET checkpoint = :sequence, checkpointSubSequenceNumber = :sub",
            ConditionExpression="leaseCounter = :counter",  # a worker that runs counts on
            ExpressionAttributeValues={
                ":sequence": {"S": after[1]},
                ":sub": {"N": after[2] or "0"},
                ":counter": {"N": leases[name]["leaseCounter"]},
            },
        )
        print(f"{name}: {leases[name]['checkpoint']} -> {shard['checkpoint']}", file=sys.stderr)


def carry_out(given: argparse.Namespace, watch_seconds: float) -> None:
    """Read the table twice, so that a worker that still renews its leases is seen; then do what is asked for."""
    dynamodb, kinesis = boto3.client("dynamodb"), boto3.client("kinesis")
    leases = read_leases(dynamodb, given.table, given.stream)
    time.sleep(watch_seconds)
    now = read_leases(dynamodb, given.table, given.stream)
    if changed := sorted(shard for shard in now if now[shard] != leases.get(shard)):
        sys.exit(
            f"expected that no worker of the KCL runs, but within {watch_seconds:.0f} s these leases changed: "
            f"{', '.join(changed)}. Stop all workers first"
        )
    if given.back is not None:
        set_back(dynamodb, given.table, leases, read_checkpoints(given.back))
    else:
        print(json.dumps(positions(leases, read_parents(kinesis, given.stream), given.not_begun), indent=2))


def main(arguments: Sequence[str] | None = None, watch_seconds: float = RENEWED_WITHIN_SECONDS) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("table", metavar="LEASE_TABLE")
    parser.add_argument("stream", metavar="STREAM")
    parser.add_argument("--not-begun", help="trim_horizon, or an ISO 8601 time with its zone")
    parser.add_argument("--back", type=Path, help="what `kinesis-spout checkpoints show --json` has printed")
    given = parser.parse_args(arguments)
    try:
        carry_out(given, watch_seconds)
    except ClientError as error:
        sys.exit(f"table {given.table}, stream {given.stream}: {error}")


if __name__ == "__main__":
    main()
