"""Books orders: a handler for each record.

$ kinesis-spout run after:book --config orders.toml
"""

import json
import os
import sqlite3
from contextlib import closing

from kinesis_spout import Reject


def book(record):
    order = json.loads(record.data)  # an exception here: retried, then dead-lettered
    if order["cents"] < 0:
        raise Reject("negative amount")  # no retry: straight to the dead letters
    with closing(sqlite3.connect(os.environ["LEDGER"])) as ledger, ledger:
        ledger.execute("CREATE TABLE IF NOT EXISTS orders (id PRIMARY KEY, cents)")
        ledger.execute("INSERT OR REPLACE INTO orders VALUES (?, ?)", (order["id"], order["cents"]))
