"""``KinesisProducer``: takes records at once, puts them in the background, and says of each what became of it.

How calls are filled and what is refused is put again is ``kinesis/write``'s; what survives a crash is ``spool``'s.
Begin with ``producer``; ``outbox`` decides.
"""

from kinesis_spout.producer.inbox import ProducerCounts
from kinesis_spout.producer.producer import KinesisProducer
from kinesis_spout.producer.ticket import PutResult, Ticket

__all__ = ["KinesisProducer", "ProducerCounts", "PutResult", "Ticket"]
