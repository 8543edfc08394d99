"""Books orders: a record processor of the KCL, started by its MultiLangDaemon for each shard."""

import json
import os
import sqlite3
import sys
import time
from contextlib import closing

from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor

CHECKPOINT_SECONDS = 60
RETRIES = 3


def book(order):
    if order["cents"] < 0:
        raise ValueError("negative amount")
    with closing(sqlite3.connect(os.environ["LEDGER"])) as ledger, ledger:
        ledger.execute("CREATE TABLE IF NOT EXISTS orders (id PRIMARY KEY, cents)")
        ledger.execute("INSERT OR REPLACE INTO orders VALUES (?, ?)", (order["id"], order["cents"]))


class Orders(processor.RecordProcessorBase):
    def initialize(self, initialize_input):
        self.shard = initialize_input.shard_id
        self.checkpointed_at = time.monotonic()

    def process_records(self, process_records_input):
        for record in process_records_input.records:
            self.book_or_give_up(record)
        if time.monotonic() - self.checkpointed_at > CHECKPOINT_SECONDS:
            self.checkpoint(process_records_input.checkpointer)

    def book_or_give_up(self, record):  # what is raised to the KCL would skip the rest of the batch
        for attempt in range(RETRIES + 1):
            try:
                book(json.loads(record.binary_data))
                return
            except sqlite3.OperationalError as error:  # the shard waits meanwhile
                reason = error
                time.sleep(2**attempt)
            except (KeyError, ValueError) as error:
                reason = error
                break
        with open(os.environ["GIVEN_UP"], "a") as letters:
            letters.write(json.dumps({"data": record.binary_data.decode(), "error": str(reason)}) + "\n")

    def checkpoint(self, checkpointer):
        for attempt in range(RETRIES + 1):
            try:
                checkpointer.checkpoint()
            except kcl.CheckpointError as error:
                if error.value != "ThrottlingException" or attempt == RETRIES:
                    print(f"{self.shard}: no checkpoint: {error.value}", file=sys.stderr)
                    return
                time.sleep(2**attempt)
            else:
                self.checkpointed_at = time.monotonic()
                return

    def lease_lost(self, lease_lost_input):
        pass  # another worker has the shard: no checkpoint

    def shard_ended(self, shard_ended_input):
        self.checkpoint(shard_ended_input.checkpointer)

    def shutdown_requested(self, shutdown_requested_input):
        self.checkpoint(shutdown_requested_input.checkpointer)


if __name__ == "__main__":
    kcl.KCLProcess(Orders()).run()
