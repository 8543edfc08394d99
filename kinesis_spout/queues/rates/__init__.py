"""How often work may be done: deliveries of a consumer and of an application, and calls for one key.

Counts and rules only: nothing here waits for a consumer, or knows of Spark. Begin with ``delivery_rate``; handlers
use ``keyed_rate``.
"""

from kinesis_spout.queues.rates.delivery_rate import DeliveryRate
from kinesis_spout.queues.rates.keyed_rate import KeyedRate

__all__ = ["DeliveryRate", "KeyedRate"]
