"""A collector: has clicks put in the background, and sends some of them twice, as an impatient browser does."""

import json
import random
from collections import Counter
from typing import TYPE_CHECKING, Final

from examples.billing_collector.biller import price
from kinesis_spout.producer import KinesisProducer, Ticket

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

_TWICE: Final = 0.05
_CUSTOMERS: Final = 12


class Collector:
    """One of many. Mutable; one thread's.

    Args:
        name: tells its clicks from those of the others.
        stream: where they go.
        client: how it reaches Kinesis.
        calls_at_once: how many calls may be under way.
    """

    def __init__(self, name: str, stream: str, client: "KinesisClient", calls_at_once: int) -> None:
        self.name = name
        self.clicks: list[str] = []
        """The customer of each click, for the recount."""
        self._tickets: list[Ticket] = []
        self._chance = random.Random(name)
        self._producer = KinesisProducer(
            stream, client=client, order="key", max_concurrent_calls=calls_at_once
        )

    def collect(self, count: int) -> None:
        """Take in so many clicks. Nothing here waits for Kinesis."""
        for _ in range(count):
            customer, number = f"customer-{self._chance.randrange(_CUSTOMERS):02}", len(self.clicks)
            click = {
                "id": f"{self.name}/{number}",
                "customer": customer,
                "collector": self.name,
                "number": number,
            }
            self.clicks.append(customer)
            for _ in range(1 + (self._chance.random() < _TWICE)):
                self._tickets.append(self._producer.put(json.dumps(click).encode(), customer))

    def flush(self) -> None:
        """Wait until every click is on the stream; raise if one is not."""
        self._producer.flush()
        for ticket in self._tickets:
            ticket.result()

    def close(self) -> int:
        """End; give how many records were put."""
        self._producer.close()
        return len(self._tickets)


def recount(collectors: list[Collector]) -> dict[str, tuple[int, int]]:
    """Make the bill again, from what the collectors remember: each customer's clicks and cents."""
    clicks = Counter(customer for collector in collectors for customer in collector.clicks)
    return {customer: (count, sum(map(price, range(count)))) for customer, count in clicks.items()}
