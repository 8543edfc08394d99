"""``python -m examples.cache_updater``: a burst of events, and a cache that is slow and fails now and then."""

import logging
import random
import sys
import threading
import time
from collections import Counter
from typing import Final

from examples.cache_updater.updater import Updater
from kinesis_spout import KinesisSpout
from kinesis_spout.testing import InMemoryStream, InMemoryZooKeeper, in_memory_ports

PRODUCTS: Final = 8
EVENTS: Final = 2_000
PER_SECOND: Final = 10.0
_STREAM: Final = "accesses"
_UPDATE_SECONDS: Final = 0.01
_FAILS: Final = 0.05
_DEADLINE_SECONDS: Final = 60.0


class Shop:
    """The products, and the cache in front of them. Mutable, thread-safe."""

    def __init__(self) -> None:
        self.prices: dict[str, int] = {}
        self.cache: dict[str, int] = {}
        self.updates = Counter[str]()
        """Of each product, those that failed included."""
        self.at_once: Counter[str] = Counter()
        self.most_at_once = 0
        self._lock = threading.Lock()
        self._chance = random.Random()

    def update(self, product: str) -> None:
        """Copy a price into the cache, slowly, or fail."""
        with self._lock:
            self.updates[product] += 1
            self.at_once[product] += 1
            self.most_at_once = max(self.most_at_once, self.at_once[product])
            fails = self._chance.random() < _FAILS
        try:
            price = self.prices[product]
            time.sleep(_UPDATE_SECONDS)
            if fails:
                raise ConnectionError("the cache did not answer")
            self.cache[product] = price
        finally:
            with self._lock:
                self.at_once[product] -= 1


def main() -> None:
    """Change prices while the updater follows, and check what the cache has in the end."""
    logging.getLogger("kinesis_spout").setLevel(logging.ERROR)  # that updates fail is meant
    shop, stream, began = Shop(), InMemoryStream(_STREAM, shards=2), time.monotonic()
    spout = KinesisSpout(
        ports=in_memory_ports(stream, InMemoryZooKeeper()),
        stream=_STREAM,
        app="cache",
        initial_position="trim_horizon",
        retry_backoff_seconds=0.05,
        retry_limit=100,
    )
    with spout.open() as tuples:
        updater = Updater(tuples, shop.update, per_second=PER_SECOND, threads=2 * PRODUCTS)
        traffic = threading.Thread(target=change_prices, args=(shop, stream))
        traffic.start()
        while tuples.counters.acked < EVENTS:
            event = tuples.next_tuple()
            if event is not None:
                updater.handle(event)
            elif time.monotonic() > began + _DEADLINE_SECONDS:
                sys.exit(f"expected {EVENTS} events handled, got {tuples.counters.acked}")
            else:
                time.sleep(0.005)
        traffic.join()
        updater.close()
        seconds, counts = time.monotonic() - began, updater.counts
    most = max(shop.updates.values())
    bound = PER_SECOND * seconds + 1
    print(
        f"{EVENTS:,} events of {PRODUCTS} products in {seconds:.1f} s; updates take {_UPDATE_SECONDS * 1000:g} ms."
    )
    print(f"Requests: {counts.accepted} accepted, {counts.waited} waited, {counts.declined} declined.")
    print(f"Updates: {shop.updates.total()} in all, at most {most} of one product ({bound:.0f} allowed).")
    if shop.cache != shop.prices:
        sys.exit(f"expected the cache to have {shop.prices}, got {shop.cache}")
    if most > bound or shop.most_at_once > 1:
        sys.exit("expected one update of a product at a time, and no more than its rate")
    print("Checked: the last state is right, every event acked, updates of a key bounded.")


def change_prices(shop: Shop, stream: InMemoryStream) -> None:
    """Change a price, and say so, again and again."""
    chance = random.Random(7)
    for number in range(EVENTS):
        product = f"product-{chance.randrange(PRODUCTS)}"
        shop.prices[product] = number
        stream.put(b"changed", product)
        if number % 100 == 0:
            time.sleep(0.05)


if __name__ == "__main__":
    main()
