"""Calls the function of AWS Lambda as it is, with an event of one record.

$ kinesis-spout run unchanged:call --config orders.toml
"""

import base64

from before import handler


def call(record):
    event = {
        "eventID": f"{record.shard_id}:{record.sequence_number}",
        "eventName": "aws:kinesis:record",
        "eventSource": "aws:kinesis",
        "kinesis": {
            "data": base64.b64encode(record.data).decode(),
            "partitionKey": record.partition_key,
            "sequenceNumber": record.sequence_number,
            "approximateArrivalTimestamp": record.arrival_timestamp,
        },
    }
    answer = handler({"Records": [event]}, None)  # what it raises fails the record
    if answer and answer.get("batchItemFailures"):
        raise RuntimeError("the function has reported a failure")
