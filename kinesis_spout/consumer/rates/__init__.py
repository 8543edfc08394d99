"""How often a consumer, and all of its application together, may deliver. Begin with ``delivery_rate``."""

from kinesis_spout.consumer.rates.delivery_rate import DeliveryRate

__all__ = ["DeliveryRate"]
