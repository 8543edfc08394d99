#!/usr/bin/env bash
# LocalStack's container runs this once it is ready (compose.yaml): makes the stream, unless it is there.
set -euo pipefail
stream=${STREAM:-orders}
if ! awslocal kinesis describe-stream-summary --stream-name "$stream" >/dev/null 2>&1; then
  awslocal kinesis create-stream --stream-name "$stream" --shard-count "${SHARDS:-2}"
fi
awslocal kinesis wait stream-exists --stream-name "$stream"
