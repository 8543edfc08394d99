"""Books orders: a function of AWS Lambda, with the response type ReportBatchItemFailures."""

import base64
import json
import os
import sqlite3
from contextlib import closing


def book(order):
    if order["cents"] < 0:
        raise ValueError("negative amount")
    with closing(sqlite3.connect(os.environ["LEDGER"])) as ledger, ledger:
        ledger.execute("CREATE TABLE IF NOT EXISTS orders (id PRIMARY KEY, cents)")
        ledger.execute("INSERT OR REPLACE INTO orders VALUES (?, ?)", (order["id"], order["cents"]))


def handler(event, context):
    for record in event["Records"]:
        try:
            book(json.loads(base64.b64decode(record["kinesis"]["data"])))
        except Exception as error:
            print(f"{record['eventID']}: {error!r}")
            # Lambda begins the next batch with this record, also if those after it are good.
            return {"batchItemFailures": [{"itemIdentifier": record["kinesis"]["sequenceNumber"]}]}
    return {"batchItemFailures": []}
