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
from pathlib import Path

import boto3
from botocore.exceptions import ClientError

RENEWED_WITHIN_SECONDS = 15
"""Longer than a worker of the KCL takes to renew its leases (a third of failoverTimeMillis, 10 s by default)."""


def read_leases(dynamodb, table, stream):
    """Read the leases of a stream by shard. Other rows (of KCL 3.5 and newer) and other streams are left out."""
    leases = {}
    for page in dynamodb.get_paginator("scan").paginate(TableName=table, ConsistentRead=True):
        for row in page["Items"]:
            if "checkpoint" not in row or row.get("entityType", {}).get("S", "LEASE") != "LEASE":
                continue
            of_stream = row.get("streamName", {}).get("S")  # account:stream:created, of several streams
            if of_stream is None or of_stream.split(":")[1:2] == [stream]:
                shard = row["shardId"]["S"] if of_stream else row["leaseKey"]["S"]
                leases[shard] = {name: next(iter(value.values())) for name, value in row.items()}
    if not leases:
        sys.exit(
            f"expected leases of the stream {stream} in the table {table}, found none: is it the lease table of "
            "this application? Unless the KCL was told otherwise, it has the application's name"
        )
    return leases


def read_parents(kinesis, stream):
    """List the shards of the stream; of each its parents that are listed, too."""
    pages = kinesis.get_paginator("list_shards").paginate(StreamName=stream)
    listed = {shard["ShardId"]: shard for page in pages for shard in page["Shards"]}
    of_shard = {
        name: {shard.get("ParentShardId"), shard.get("AdjacentParentShardId")}
        for name, shard in listed.items()
    }
    return {name: sorted(parents & listed.keys()) for name, parents in of_shard.items()}


def positions(leases, parents, not_begun=None):
    """Give the position of each shard that does not begin at its oldest record.

    Args:
        leases: by shard.
        parents: those of each shard that the stream lists.
        not_begun: where shards begin for which the KCL has stored LATEST or AT_TIMESTAMP and no record yet.
    """
    if not leases.keys() & parents.keys():
        sys.exit(
            f"expected leases of the stream's shards ({', '.join(sorted(parents))}), found leases of others "
            f"({', '.join(sorted(leases))}): it is the table of another stream, or the stream was made anew"
        )
    found, unknown, begun = {}, [], set()
    for shard in sorted(leases.keys() & parents.keys()):
        begun |= ancestors(shard, parents)
    for shard in parents:
        lease = leases.get(shard)
        if lease is None and shard in begun:
            found[shard] = "latest"  # its children have leases: it is done, and its own lease was removed
        elif lease is None:
            if not ancestors(shard, parents) & leases.keys():
                unknown.append(f"{shard} has no lease")
        elif lease["checkpoint"] == "SHARD_END":
            found[shard] = "latest"  # nothing of it is read again
        elif re.fullmatch(r"\d+", lease["checkpoint"]):
            sub = int(lease.get("checkpointSubSequenceNumber", 0))
            found[shard] = f"after_sequence_number {lease['checkpoint']}:{sub}"
        elif lease["checkpoint"] != "TRIM_HORIZON" and not_begun is None:
            unknown.append(f"the lease of {shard} is at {lease['checkpoint']}: nothing was checkpointed")
        elif lease["checkpoint"] != "TRIM_HORIZON":
            found[shard] = not_begun
    if unknown:
        sys.exit(
            f"expected a checkpoint of each shard, but {'; '.join(unknown)}. Begin at a time instead (the guide says "
            "how), or say with --not-begun where a lease without a checkpoint begins"
        )
    return found


def ancestors(shard, parents):
    """Name the shards that a shard came from."""
    above = set(parents[shard])
    return above.union(*(ancestors(each, parents) for each in above))


def set_back(dynamodb, table, leases, document):
    """Move the leases of open shards to the checkpoints of a `checkpoints show --json`; say which."""
    for shard in document["shards"]:
        name = shard["shard_id"]
        after = re.fullmatch(r"(\d+)(?::(\d+))?", shard["checkpoint"] or "")
        if name not in leases or leases[name]["checkpoint"] == "SHARD_END" or after is None:
            print(f"{name}: left as it is; what the KCL had not checkpointed of it comes again", file=sys.stderr)
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
        print(f"{name}: {leases[name]['checkpoint']} -> {after[1]}", file=sys.stderr)


def main(arguments=None, watch_seconds=RENEWED_WITHIN_SECONDS):
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


def carry_out(given, watch_seconds):
    """Read the table twice, so that a worker that still renews its leases is seen; then do what was asked for."""
    dynamodb, kinesis = boto3.client("dynamodb"), boto3.client("kinesis")
    leases = read_leases(dynamodb, given.table, given.stream)
    time.sleep(watch_seconds)
    now = read_leases(dynamodb, given.table, given.stream)
    if renewed := sorted(shard for shard in now if now[shard] != leases.get(shard)):
        sys.exit(
            f"expected that no worker of the KCL runs, but within {watch_seconds} s these leases changed: "
            f"{', '.join(renewed)}. Stop all workers first"
        )
    if given.back is not None:
        set_back(dynamodb, given.table, leases, json.loads(given.back.read_text()))
    else:
        print(json.dumps(positions(leases, read_parents(kinesis, given.stream), given.not_begun), indent=2))


if __name__ == "__main__":
    main()
