"""Keeps the balance of each account and warns of overdrafts: an application of faust.

$ faust --app before:app worker
"""

import faust

app = faust.App("balances", broker="kafka://localhost:9092", store="memory://")


class Payment(faust.Record):
    account: str
    cents: int


payments = app.topic("payments", key_type=str, value_type=Payment)
balances = app.Table("balances", default=int, partitions=8)


async def warn(warning):
    print(*warning)


@app.agent(payments, sink=[warn])
async def balance(stream):
    async for payment in stream:  # the topic is keyed by account
        balances[payment.account] += payment.cents
        if balances[payment.account] < 0:
            yield payment.account, balances[payment.account]
