"""A handler for ``foreach_record`` and ``each_record``: returning acks the record, raising fails it.

$ kinesis-spout run examples.handlers.bill:bill --stream orders --app billing
"""

import json

from kinesis_spout import Record, Reject


def bill(record: Record) -> None:
    """Charge an order."""
    order = json.loads(record.data)
    if order["amount"] < 0:
        raise Reject("negative amount")  # no retry: straight to the dead letters
    print(f"charging {order['amount']}")  # an exception here: retried, then dead-lettered
