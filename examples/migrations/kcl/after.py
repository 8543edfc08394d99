"""Books orders: a consumer in plain Python. Each process that runs this is one more member."""

import json
import os
import sqlite3
from contextlib import closing

from kinesis_spout import KinesisSpout, Reject


def book(record):
    try:
        order = json.loads(record.data)
        number, cents = order["id"], order["cents"]
    except (KeyError, ValueError) as error:
        raise Reject(f"no order: {error}") from error  # no retry: straight to the dead letters
    if cents < 0:
        raise Reject("negative amount")
    with closing(sqlite3.connect(os.environ["LEDGER"])) as ledger, ledger:
        ledger.execute("CREATE TABLE IF NOT EXISTS orders (id PRIMARY KEY, cents)")
        ledger.execute("INSERT OR REPLACE INTO orders VALUES (?, ?)", (number, cents))


def main():
    with KinesisSpout().open() as tuples:  # until SIGTERM or Ctrl-C
        for message_id, record in tuples:
            try:
                book(record)
            except Exception as error:  # retried with back-off, then dead-lettered; others go on
                tuples.fail(message_id, error)
            else:
                tuples.ack(message_id)


if __name__ == "__main__":
    main()
