"""Runs the agent of faust over lines of JSON from standard input, without a broker. It has no kinesis_spout."""

import asyncio
import json
import sys

from before import Payment, balance

LAST = ("last", -1)
"""A warning that comes after all others: the agent answers to nothing else."""


async def main() -> None:
    payments = [json.loads(line) for line in sys.stdin]
    async with asyncio.timeout(60), balance.test_context() as agent:
        for account, cents in [*((each["account"], each["cents"]) for each in payments), LAST]:
            await agent.put(Payment(account=account, cents=cents), key=account, wait=False)
        while LAST not in agent.results.values():
            await asyncio.sleep(0.001)


asyncio.run(main())
