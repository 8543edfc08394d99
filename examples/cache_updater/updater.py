"""The updater: however many events there are of a product, one update is in process and at most one waits.

An event says only that a product was changed. The update reads what it is now, so one update does for all events
that came before it began, and they are acked when it is done.
"""

import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from kinesis_spout import Emitted, KinesisSpout
from kinesis_spout.recipes import CoalescingCounts, KeyedRate, QueueCoordinator


class Updater:
    """Handles the events of a spout, several at a time. Mutable; ``handle`` is one thread's.

    Args:
        spout: gives the events; the partition key is the product.
        update: brings the cache up to date for a product. Raising fails the events, which come again.
        per_second: how often that may be done for one product.
        threads: how many updates may be under way, or wait: twice as many as products that are busy.
    """

    def __init__(
        self, spout: KinesisSpout, update: Callable[[str], None], *, per_second: float, threads: int
    ) -> None:
        self._spout = spout
        self._update = update
        self._rate = KeyedRate(per_second)
        self._requests: QueueCoordinator[str, None] = QueueCoordinator(lease_seconds=30.0)
        self._arrived: defaultdict[str, list[str]] = defaultdict(list)
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="updater")

    @property
    def counts(self) -> CoalescingCounts:
        """How many requests were accepted, waited, or were declined."""
        return self._requests.counts

    def handle(self, event: Emitted) -> None:
        """Take an event over. Returns at once."""
        product = event.values.partition_key
        with self._lock:
            self._arrived[product].append(event.message_id)
        self._pool.submit(self._request, product).add_done_callback(Future.result)  # logs what it raises

    def close(self) -> None:
        """Wait for what was taken over."""
        self._pool.shutdown()

    def _request(self, product: str) -> None:
        with self._requests.request(product, None) as turn:
            for _ in turn:  # not at all, where another one waits already: it will do this event too
                self._rate.acquire(product)
                with self._lock:
                    events = self._arrived.pop(product, [])
                if events:
                    self._bring_up_to_date(product, events)

    def _bring_up_to_date(self, product: str, events: list[str]) -> None:
        try:
            self._update(product)
        except Exception as error:  # noqa: BLE001 - whatever an update raises fails its events
            for message_id in events:
                self._spout.fail(message_id, error)
        else:
            for message_id in events:
                self._spout.ack(message_id)
